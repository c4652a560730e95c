# Fifteen commands do everything, their own installs included: make demo, make test, make test-oldest, make test-node,
# make test-install, make test-slurm-chart, make test-pools, make test-gpu, make conformance, make bench,
# make bench-quick, make bench-restart, make bench-scale, make load, make chaos.
.PHONY: demo test test-oldest test-node test-install test-slurm-chart test-pools test-gpu conformance bench bench-quick
.PHONY: bench-restart bench-scale performance-page load chaos check looks prepared docs words protocols lock clean

BENCH =
DURATION = 1500
SEED = 0
SLURM = stub

# Where bytecode is not written, each of pytest's workers rewrites all tests again, and each program of ours
# that a test starts takes 2 s longer.
export PYTHONDONTWRITEBYTECODE =

demo:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local.demo

# What computes on one core goes on beside what downloads and unpacks.
test:
	@./bootstrap --cluster
	@$(MAKE) --no-print-directory --jobs 2 looks prepared
	@./check tests
	.venv/bin/python -m tests.real tests

looks:
	@./check looks

prepared:
	@.venv/bin/python -m deploy.local prepare --monitoring
	@.venv/bin/python -m deploy.local prepare --no-kubernetes --accounting
	@.venv/bin/python -m deploy.local prepare --no-kubernetes --release 24.11
	@.venv/bin/python -m deploy.local prepare --no-kubernetes --release 24.11 --accounting
	@.venv/bin/python -m deploy.images build login sssd

# What needs a real kubelet and a real slurmd: a virtual machine is a Node, with the node agent of this checkout.
test-node:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --guest
	@.venv/bin/python -m deploy.local prepare --guest --release 24.11
	.venv/bin/pytest -m node tests/node --durations 10

# What is published: the images are built, and the chart is installed with them on a virtual machine. What is found is
# left in build/deploy.json.
test-install:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --guest
	.venv/bin/pytest -m install tests/images tests/install --durations 10

# The chart of a whole Slurm: parts of it without a kubelet, 20 kills of slurmctld under load, and all of it, with
# slurm-extender beside, in a virtual machine. What is found is left in build/slurm_chart.json.
# TESTS=FILE::TEST does one of them.
test-slurm-chart:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --accounting
	@.venv/bin/python -m deploy.local prepare --no-kubernetes --release 24.11 --accounting
	@.venv/bin/python -m deploy.local prepare --guest
	.venv/bin/pytest -m install $(or $(TESTS),tests/slurm_chart) --durations 10

# Pools of slurmd Pods: 20 roll-outs under load on each release of Slurm, and one of a thousand nodes. What is found is
# left in build/pools.json. It needs 8 GB of memory and 40 minutes.
test-pools: export POOLS_ROLL_OUTS = 20
test-pools:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local prepare --release 24.11
	.venv/bin/pytest -m "real or pools" tests/slurmd_pods --durations 10

# What needs a GPU of NVIDIA, its driver and root, and nothing else: on such a machine, by a person.
test-gpu:
	@./bootstrap
	.venv/bin/pytest -m gpu tests/node_agent

# The end-to-end tests, and the chart's, on the oldest Kubernetes that is supported; it is built for them, once.
test-oldest: export KUBERNETES_RELEASE = 1.31
test-oldest:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/python -m tests.real tests/end_to_end tests/chart

# Kubernetes' own specs of scheduling without the extender and with it; the results are left in build/conformance.json.
conformance:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m tests.conformance

# The whole path beside what bounds it, an hour or more; BENCH="--only 'ways'" does a part of it (--help).
bench:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local prepare --release 24.11
	@failed=0; $(if $(BENCH),,.venv/bin/python -m loadtest bench-scale || failed=1;) \
		.venv/bin/python -m loadtest bench $(BENCH) || failed=1; exit $$failed

# What the pages say in figures, from what make bench and make bench-scale have left in build.
performance-page:
	@./bootstrap
	@.venv/bin/python -m loadtest performance-page

bench-quick:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-quick

# How soon an extender that was killed acts again, with 10,000 placeholders.
bench-restart:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-restart

# 50,000 Pods that wait on 5,000 Nodes, and the restart above; see docs/scale.md.
bench-scale:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-scale

# kube-scheduler's calls at 50, 1,000 and 5,000 Nodes; SLURM=real asks no stub. See loadtest/budgets.toml.
load:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest load --slurm $(SLURM)

# Everything fails at random for DURATION seconds; the figures are left in build/chaos.json.
chaos:
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/python -m tests.chaos --duration $(DURATION) --seed $(SEED)

check:
	@./check

# What of the pages is made from the code; ./check fails where it was not.
docs:
	@./bootstrap
	.venv/bin/python -m extender.pages
	.venv/bin/python -m deploy.monitoring
	.venv/bin/python -m deploy.charts.pages
	.venv/bin/python -m deploy.charts.slurm_pages
	.venv/bin/python -m deploy.settings_page

# How many of Slurm's pending reasons there are, and how many are explained: build/words.json.
words:
	@./bootstrap
	.venv/bin/python -m tests.words build/words.json

# The modules of the messages in node_agent/*/*.proto.
protocols:
	@./bootstrap
	.venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. node_agent/*/*.proto

# The lock holds names, versions and hashes only.
lock:
	@./bootstrap
	.venv/bin/uv pip compile --quiet --no-header --generate-hashes --universal --python-version 3.11 \
		--extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build dist
