.DEFAULT_GOAL := help
.PHONY: help demo demo-docker demo-kubernetes demo-parallel test check fix serve cluster cluster-down benchmarks crash-points chaos clean

help:        ## show this
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 20

demo:        ## train a real model on three processes, through the API; everything it needs is set up
	@scripts/install
	@scripts/demo

demo-docker: ## the same in containers: a Docker engine, the image, three containers
	@scripts/install
	@scripts/demo-docker

demo-parallel: ## train one model under every parallelism, through the API, and compare what each costs
	@scripts/install
	@scripts/demo-parallel

demo-kubernetes: ## the same in pods: a cluster, the images, the service in it, three pods; up to 17 minutes the first time
	@scripts/install
	@scripts/demo-kubernetes

test:        ## all checks and tests: format, lint, types, layers, generated files, tests
	@scripts/install
	@# The environments come before the tests, which need them: beside them, their installation would take minutes.
	@scripts/check & check=$$!; \
	scripts/install-frameworks && scripts/install-chromium && scripts/test; tests=$$?; \
	wait $$check || { echo "test: scripts/check failed, see above"; tests=1; }; exit $$tests

check:       ## all of that except the tests
	@scripts/install
	@scripts/check

fix:         ## format, and mend what the linter can
	@scripts/install
	@scripts/check --fix

serve:       ## start the service on embedded defaults
	@scripts/install
	@.venv/bin/training-service serve

cluster:     ## a Kubernetes cluster of one node, for tests (which start it themselves) and for trying things out
	@tests/cluster/cluster up

cluster-down: ## stop it
	@tests/cluster/cluster down

benchmarks:  ## measure, and print ratios
	@scripts/install
	@.venv/bin/python -m benchmarks.run

crash-points: ## kill the service at every call that it makes to the outside; --help of the script has more
	@scripts/install
	@scripts/crash-points

chaos:       ## kill and freeze real services under honest and hostile jobs; --help of the script has more
	@scripts/install
	@scripts/chaos

clean:       ## remove what the above made
	rm -rf .venv .local .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
