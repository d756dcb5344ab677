"""The index at `/api`: static HTML without scripts that names the REST resources. It needs no token."""

import base64
import hashlib
from typing import Final

import headgate

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --link: #0b61c2; }
@media (prefers-color-scheme: dark) { :root { --link: #7ab8ff; } }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { margin: 0 0 .25rem; font-size: 1.9rem; }
h1 small { font-size: 1rem; font-weight: normal; opacity: .7; }
h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
p { margin: .5rem 0; }
a { color: var(--link); }
code { font: .875em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
dl { margin: 0; border-top: 1px solid var(--line); }
dt { padding: .6rem 0 0; }
dd { margin: 0; padding: 0 0 .6rem; border-bottom: 1px solid var(--line); }
pre { margin: .5rem 0; padding: .75rem 1rem; background: var(--soft); border-radius: .4rem; overflow-x: auto; }
"""

HTML: Final = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Headgate</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Headgate <small>{headgate.__version__}</small></h1>
<p>A gateway in front of Apache Kafka. It shows which topics every client uses and what every Streams application
computes, and it adds dead letters and a circuit breaker to share groups.</p>
<p>This address serves the REST interface. Responses are JSON.</p>
<h2>Resources</h2>
<dl>
<dt><a href="/api/v1/connectors"><code>GET /api/v1/connectors</code></a></dt>
<dd>The topics of all connectors, as Connect reports them and as seen on the wire. Parameters: <code>name</code>,
<code>cluster</code>.</dd>
<dt><code>GET /connectors/NAME/topics</code></dt>
<dd>The active topics of a connector, as a Connect worker returns them (KIP-558).</dd>
<dt><code>PUT /connectors/NAME/topics/reset</code></dt>
<dd>Resets the active topics of a connector. With a tokens file it requires the scope <code>operate</code>.</dd>
<dt><code>/connect/CLUSTER/connectors/NAME/topics</code></dt>
<dd>The same for one of several Connect clusters.</dd>
<dt><a href="/api/v1/health"><code>GET /api/v1/health</code></a></dt>
<dd>Whether all topics that this process reads are available, the tables, and the last runs of the pipeline.</dd>
<dt><a href="/api/v1/graph"><code>GET /api/v1/graph</code></a></dt>
<dd>The map of topics and of everything that uses them. Parameters: <code>focus</code>, <code>hops</code>,
<code>kinds</code>, <code>as_of</code>, <code>format</code> and more.</dd>
<dt><a href="/api/v1/topics"><code>GET /api/v1/topics</code></a></dt>
<dd>The topics; <code>/api/v1/topics/NAME</code> is one of them, and <code>/impact</code> what depends on it.</dd>
<dt><a href="/api/v1/openapi.json"><code>GET /api/v1/openapi.json</code></a></dt>
<dd>All resources as an OpenAPI document.</dd>
</dl>
<h2>Authorization</h2>
<p>If a resource responds with 401, send <code>Authorization: Bearer TOKEN</code>. An operator creates a token with:</p>
<pre><code>headgate web token FILE --name NAME --scope read</code></pre>
<h2>Command line</h2>
<pre><code>headgate connectors --url URL topics NAME
headgate connectors --url URL compare NAME</code></pre>
<h2>Documentation</h2>
<p><code>docs/web.md</code> describes this server, tokens and TLS; <code>docs/api.md</code> the resources of the
estate; <code>docs/kip-558.md</code> the active topics of connectors; <code>docs/activity.md</code> how clients are
identified; <code>docs/operate.md</code> operation.</p>
</main>
</body>
</html>
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
