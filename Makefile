# Each command installs its needs. `make` prints all commands.
.PHONY: help demo test test-long test-releases test-oldest test-node test-install test-slurm-chart test-pools test-gpu test-gangs
.PHONY: conformance bench bench-gangs bench-quick bench-restart bench-scale performance-page load chaos check looks prepared docs site words
.PHONY: protocols lock clean

BENCH =
DURATION = 1500
SEED = 0
SLURM = stub

# Without written bytecode, each worker of pytest compiles all tests again, and each program that a test starts
# takes 2 s longer.
export PYTHONDONTWRITEBYTECODE =

# Until Python 3.11.4, ast.parse fails if a garbage collection during the call logs a traceback: the traceback also calls
# ast.parse, to mark the columns of a line.
export PYTHONNODEBUGRANGES = 1

help:
	@awk -F ':  ## ' '/^[a-z-]+:  ## / {printf "  make %-18s%s\n", $$1, $$2}' Makefile

demo:  ## a whole cluster on this machine, live: Pods in squeue, jobs that evict Pods
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local.demo

# Work on one core runs beside downloads and unpacking.
test:  ## every check and test, real components included
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

# Tests with a real kubelet and a real slurmd: a virtual machine is a Node, with the node agent of this checkout.
test-node:  ## the node agent on a real kubelet and kernel, in a virtual machine
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --guest
	@.venv/bin/python -m deploy.local prepare --guest --release 24.11
	.venv/bin/pytest -m node tests/node --durations 10

# All suites that are too long for make test, one after the other. SUITES="chaos load" runs only these two. The table in
# docs/design/development.md has the last success of each suite.
test-long:  ## what takes too long for make test, for some hours
	@./bootstrap
	.venv/bin/python -m tests.long $(SUITES)

# All real tests on both releases of Slurm (make test runs most tests on one release), and tests that wait for minutes.
test-releases:  ## the real tests on both releases of Slurm
	@./bootstrap --cluster
	@$(MAKE) --no-print-directory prepared
	.venv/bin/python -m tests.real --all-releases tests
	.venv/bin/pytest -m long tests --durations 10

# Builds the images, and installs the chart with them on a virtual machine. build/deploy.json has the results.
test-install:  ## images and the chart, installed on a virtual machine
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --guest
	.venv/bin/pytest -m install tests/images tests/install --durations 10

# The chart of a whole Slurm: parts without a kubelet, 20 kills of slurmctld under load, and the whole chart beside
# slurm-extender in a virtual machine. build/slurm_chart.json has the results. TESTS=FILE::TEST runs one test.
test-slurm-chart:  ## the chart of a whole Slurm, on a virtual machine
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare --accounting
	@.venv/bin/python -m deploy.local prepare --no-kubernetes --release 24.11 --accounting
	@.venv/bin/python -m deploy.local prepare --guest
	.venv/bin/pytest -m install $(or $(TESTS),tests/slurm_chart) --durations 10

# Pools of slurmd Pods: 20 roll-outs under load on each release of Slurm, and one of a thousand nodes. The suite needs
# 8 GB of memory and 40 minutes. build/pools.json has the results.
test-pools: export POOLS_ROLL_OUTS = 20
test-pools:  ## pools of slurmd Pods: roll-outs under load, a thousand nodes
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local prepare --release 24.11
	.venv/bin/pytest -m "real or pools" tests/slurmd_pods --durations 10

# Tests that need only a GPU of NVIDIA, its driver and root. A person runs these tests on such a machine.
test-gpu:  ## the node agent beside NVIDIA's driver, on a machine with a GPU
	@./bootstrap
	.venv/bin/pytest -m gpu tests/node_agent

# LWS and JOBSET are checkouts of kubernetes-sigs/lws and kubernetes-sigs/jobset, from which the controllers are built.
test-gangs: export LWS ?= build/lws
test-gangs: export JOBSET ?= build/jobset
test-gangs:  ## gangs of the real LeaderWorkerSet and JobSet controllers, built from checkouts
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/pytest -m controllers tests/gang_controllers --durations 10

# The end-to-end tests and the tests of the charts on the oldest supported Kubernetes, which is built once.
test-oldest: export KUBERNETES_RELEASE = 1.31
test-oldest:  ## the end-to-end tests on the oldest Kubernetes
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/python -m tests.real tests/end_to_end tests/chart tests/gitops \
		tests/slurm_chart/test_rendered.py tests/slurm_chart/test_release.py

# Kubernetes' own specs of scheduling, without and with the extender. build/conformance.json has the results.
conformance:  ## Kubernetes' own specs of scheduling
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m tests.conformance
	@.venv/bin/python -m tests.conformance --pod-groups --report build/conformance-pod-groups.json

# The extender beside other schedulers, for an hour or more. BENCH="--only 'ways'" runs a part (--help).
bench:  ## Pods per second and latency beside other schedulers, for an hour or more
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m deploy.local prepare --release 24.11
	@failed=0; $(if $(BENCH),,.venv/bin/python -m loadtest bench-scale || failed=1;) \
		.venv/bin/python -m loadtest bench $(BENCH) || failed=1; exit $$failed

# The figures of pages, from the results of make bench, make load and make bench-scale in build.
performance-page:  ## the pages that show figures, from what bench and load measured
	@./bootstrap
	@.venv/bin/python -m loadtest performance-page

bench-quick:  ## a part of it, in five minutes
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-quick

# A gang of 512 Pods on 64 Nodes, beside the same Pods without Slurm.
bench-gangs:  ## the start of a gang, beside the same Pods without Slurm
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-gangs

# The time until a killed extender acts again, with 10,000 placeholders.
bench-restart:  ## a restart with 10,000 placeholders
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-restart

# 50,000 Pods that wait on 5,000 Nodes, and the restart above; see docs/reference/scale.md.
bench-scale:  ## 50,000 waiting Pods on 5,000 Nodes
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest bench-scale

# kube-scheduler's calls at 50, 1,000 and 5,000 Nodes; SLURM=real uses no stub. See loadtest/budgets.toml.
load:  ## times of kube-scheduler's calls
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	@.venv/bin/python -m loadtest load --slurm $(SLURM)

# Random failures of all parts for DURATION seconds. build/chaos.json has the results.
chaos:  ## everything fails at random for DURATION seconds
	@./bootstrap --cluster
	@.venv/bin/python -m deploy.local prepare
	.venv/bin/python -m tests.chaos --duration $(DURATION) --seed $(SEED)

check:  ## format, lint, types, layers, fast tests: before each commit
	@./check

# The generated parts of pages. ./check fails if a part is stale.
docs:  ## the parts of pages that are made from the code
	@./bootstrap
	.venv/bin/python -m extender.pages
	.venv/bin/python -m deploy.monitoring
	.venv/bin/python -m deploy.charts.pages
	.venv/bin/python -m deploy.charts.slurm_pages
	.venv/bin/python -m deploy.settings_page
	.venv/bin/python -m tests.long --page

# Counts Slurm's pending reasons, and the explained reasons: build/words.json.
words:  ## how many of Slurm's pending reasons are explained
	@./bootstrap
	.venv/bin/python -m tests.words build/words.json

# The modules of the messages in node_agent/*/*.proto.
protocols:  ## the Python modules of the protobuf files
	@./bootstrap
	.venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. node_agent/*/*.proto

# The pages of docs by mkdocs, and llms.txt.
site:  ## the documentation as a site, in build/site
	@./bootstrap
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# The lock holds names, versions and hashes only.
lock:  ## requirements.lock
	@./bootstrap
	.venv/bin/uv pip compile --quiet --no-header --generate-hashes --universal --python-version 3.11 \
		--extra dev pyproject.toml -o requirements.lock

clean:  ## remove what was built in this folder
	rm -rf .venv build dist
