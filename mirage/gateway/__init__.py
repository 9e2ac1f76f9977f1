"""One address for a service: where its links are now, and what passes requests on to them.

`endpoints.py` reads what the links wrote; `pool.py` knows which of them take requests; `relay.py`
passes connections on, `http.py` requests; `haproxy.py` and `nginx.py` keep a proxy in step;
`gateway.py` puts these together.
"""
