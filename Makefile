# Three commands do everything, their own installs included: make demo, make test, make bench-quick.
.PHONY: demo test bench-quick check lock clean

demo:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local.demo

test:
	@./bootstrap --cluster
	@./check
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/pytest -m real --durations 10

bench-quick:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest.bench_quick

check:
	@./check

# The lock holds names, versions and hashes only.
lock:
	@./bootstrap
	.venv/bin/uv pip compile --quiet --no-header --generate-hashes --universal --python-version 3.11 \
		--extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build dist
