"""What `config check` warns of: legal, and worth a thought."""

from pathlib import Path

import pytest

from headgate.config import load
from headgate.config.rules import warnings


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", []),
        ("[upstream]\ntls = true\nservice_mechanism = 'none'\n", ["upstream.service_mechanism"]),
        (
            "[upstream]\nservice_user = 'u'\nservice_password_file = 'HERE'\nservice_mechanism = 'PLAIN'\n",
            ["upstream.service_mechanism"],
        ),
        ("[upstream]\nservice_user = 'u'\nservice_password_file = 'HERE'\n", []),
        (
            (
                "gateway = { tls_cert = 'HERE', tls_key = 'HERE', tls_client_ca = 'HERE' }\n"
                "upstream = { service_user = 'u', service_password_file = 'HERE' }\n"
            ),
            ["gateway.tls_client_ca"],
        ),
    ],
)
def test_a_warning_is_given_where_identity_or_a_password_is_at_stake(
    text: str, paths: list[str], tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.write_text("secret")
    file = tmp_path / "headgate.toml"
    file.write_text(text.replace("HERE", str(here)))
    assert [warning.paths[0] for warning in warnings(load(file, {}))] == paths
