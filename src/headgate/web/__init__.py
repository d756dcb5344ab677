"""The REST interface and the page: a FastAPI application with one router for each resource. It never loads Spark.

Reading order:

1. `server` runs the process, `application` joins all routes; `client_connections`, `paths`, `index_page` and `page`.
2. `access`, `tokens`, `visible_names`: who may send a request, and which names an answer may have.
3. `api/`: resources that are read from tables; begin with `api/routers` and `api/estate_tables`.
4. What is read from Kafka itself: `estate_topics` into `estate_facts`, `share_states`, `connectors`,
   `breaker_statuses`, `gateway_leader`, `upstream_cluster`; `events` reports changes (`live_sources` into `live_feed`).
5. Operators: `operator_requests` checks, `share_group_actions` (`operations`), `record_actions` (`record_view`) and
   `replay_runs/` act, `audit` records.
"""
