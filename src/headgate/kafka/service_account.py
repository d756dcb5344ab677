"""The service account of `[upstream]`: who Headgate is when it asks for itself.

One rule: never for a client. The password is read when it is needed and kept nowhere else.
"""

import ssl

from headgate.config.files import read_secret
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import Dialler
from headgate.kafka.sasl import Credentials


def credentials_of(upstream: UpstreamConfig) -> Credentials | None:
    """None where the cluster has no SASL."""
    if upstream.service_user is None or upstream.service_password_file is None:
        return None
    password = read_secret(upstream.service_password_file).get_secret_value()
    return Credentials(user=upstream.service_user, password=password, mechanism=upstream.service_mechanism)


def dialler_of(upstream: UpstreamConfig) -> Dialler:
    """For a few calls of our own; certificates and password are read anew each time."""
    tls = ssl.create_default_context(cafile=upstream.tls_ca) if upstream.tls else None
    return Dialler(bootstrap=upstream.bootstrap, tls=tls, credentials=credentials_of(upstream))
