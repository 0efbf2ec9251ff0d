# Everything here works from a fresh clone with Go alone; what else is needed is built from pinned modules by the targets
# that need it, once for all clones (test/tools/build.sh). Only e2e asks for root and Debian packages.

SHELL := /bin/bash
.DEFAULT_GOAL := help

export GOTOOLCHAIN ?= local
# Binaries, tests, the linter and the tools are built alike, so that a package is compiled once for all of them, and for
# every clone that shares the cache.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT_HASH ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The time of the sources and not of the build, so that the same sources give the same bytes: SOURCE_DATE_EPOCH
# (https://reproducible-builds.org/specs/source-date-epoch/), else the commit's time.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BUILD_DATE ?= $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r $(SOURCE_DATE_EPOCH) +%Y-%m-%dT%H:%M:%SZ)
STAMP := github.com/kube-node-ready/kube-node-ready/internal/version
GO_BUILD := go build -buildvcs=false -ldflags "-s -w -X $(STAMP).Version=$(VERSION) -X $(STAMP).Commit=$(COMMIT_HASH) -X $(STAMP).BuildDate=$(BUILD_DATE)"

CHART := deploy/helm/kube-node-ready

TOOLS := test/tools/build.sh
# A control plane with DNS: what the demo and most tests run on.
CLUSTER_TOOLS := etcd kubernetes coredns
# The chart's tests render with helm and test its alerts with promtool.
TEST_TOOLS := $(CLUSTER_TOOLS) helm prometheus gotestsum
# Real nodes, and Karpenter.
E2E_TOOLS := $(TEST_TOOLS) kubernetes-node containerd karpenter
# What repairs nodes, and what suspects them.
REPAIR_TOOLS := $(CLUSTER_TOOLS) cluster-api karpenter node-problem-detector

# Modules of this project other than the root's; test/tools holds pins alone.
NESTED := $(filter-out test/tools/%,$(patsubst %/go.mod,%,$(wildcard test/*/go.mod test/cluster/realnode/*/go.mod)))

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: cluster-tools build ## Watch five nodes being verified on a real control plane (KEEP=1 leaves it running, SVG=file draws it)
	@mkdir -p .cache/bin
	@go build -o .cache/bin/demo ./test/demo
	@exec .cache/bin/demo $(if $(KEEP),--keep) $(if $(SVG),--svg $(SVG))

# Packages that are tested at once. The longest come first, or the others wait for them. They wait more than they compute, and yet with
# four at once on two cores, tests of what happens within seconds do not hold.
TEST_PACKAGES ?= 3
# Go's garbage collector runs a quarter as often, in API servers above all, whose work most of a run is: an eighth less of it.
TEST_GOGC ?= 400
# go vet is a part of make lint, and no debugger looks at a test's program: without both, a run that has nothing cached computes a tenth less.
TEST_FLAGS := -vet=off -ldflags "-s -w" -timeout 20m
# test/integration, whose workers ask an API server that must answer within seconds, comes once those that compute most are done.
LONG_TESTS := ./test/chart ./internal/controller/remediation ./internal/controller/node ./internal/rules ./test/chaos ./test/remediation ./test/admission ./test/integration ./test/rules ./test/initialisation

# Of at most three failed tests each is run once more. One that passes then is flaky, which this file reports, and never hidden.
FLAKY := .cache/flaky.txt
GOTESTSUM := .cache/tools/bin/gotestsum --format pkgname-and-test-fails --hide-summary skipped \
	--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-report=$(CURDIR)/$(FLAKY)

# The packages whose tests are in worlds (test/world) share a control plane.
WITH_SERVER := CGO_ENABLED=0 go run ./test/world/server

.PHONY: test
test: tools ## Run the unit tests, and the integration tests on a real API server
	@$(MAKE) --no-print-directory build BIN="$(TEST_PROGRAMS)" VERSION=test COMMIT_HASH=none SOURCE_DATE_EPOCH=0
	@rm -f $(FLAKY)
	KUBE_NODE_READY_PROGRAMS="$(TEST_PROGRAMS)" GOGC=$(TEST_GOGC) $(WITH_SERVER) $(GOTESTSUM) --packages="$(LONG_TESTS) $$(go list ./... | grep -vxE '.*/test/(supplychain|tools)' | tr '\n' ' ')" -- $(TEST_FLAGS) -p $(TEST_PACKAGES) -parallel 8
	@set -e; for module in $(filter-out test/image,$(NESTED)); do echo "cd $$module && go test ./..."; (cd $$module && go test $(TEST_FLAGS) ./...); done

# Tests that start installations of their own, and that seldom find what the others do not. By day one of each kind
# stands for the others: of presets (test/integration), and of what makes the condition go (test/remediation).
# By night test/chart has an API server without MutatingAdmissionPolicies too. test/tools builds with build.sh in many
# ways; each make tools does in one.
.PHONY: test-nightly
test-nightly: tools ## Run the tests that make test leaves out, among them the commands of all pages
	@$(MAKE) --no-print-directory build BIN="$(TEST_PROGRAMS)" VERSION=test COMMIT_HASH=none SOURCE_DATE_EPOCH=0
	NIGHTLY=1 KUBE_NODE_READY_PROGRAMS="$(TEST_PROGRAMS)" GOGC=$(TEST_GOGC) go test $(TEST_FLAGS) -count=1 \
		-p $(TEST_PACKAGES) -parallel 8 ./test/docs/... ./test/chart ./test/integration ./test/remediation ./test/tools

# Reproducible builds and images of both architectures are compiled again and again, and no change of a decision touches them.
.PHONY: test-release
test-release: tools build ## Test what a release holds: builds that give the same bytes, their modules, and the images
	go test $(TEST_FLAGS) ./test/supplychain
	cd test/image && go test $(TEST_FLAGS) ./...

.PHONY: test-build
test-build: # Compile what make test runs: go list -export compiles, and links nothing.
	@$(MAKE) --no-print-directory build BIN="$(TEST_PROGRAMS)" VERSION=test COMMIT_HASH=none SOURCE_DATE_EPOCH=0
	@go list -test -deps -export -f '{{""}}' ./... >/dev/null

# What is tested has no commit stamped into it: a result of before holds for the next commit where that changes nothing else. test/supplychain
# looks at the stamps.
TEST_PROGRAMS := $(CURDIR)/.cache/test

# $(call build_program,name,package,folder,go build with its flags): go build touches a program that is up to date, and then go test would run
# again what was tested with it.
define build_program
@mkdir -p $(3)
$(4) -o $(3)/.built/$(1) $(2)
@cmp -s $(3)/.built/$(1) $(3)/$(1) || install -m 755 $(3)/.built/$(1) $(3)/$(1)
endef

# What does something at once: a go statement, a channel, or something of package sync, in a file that is no test.
RACE_PACKAGES = $(sort $(patsubst %/,./%,$(dir $(shell grep -rlE --include='*.go' --exclude='*_test.go' \
	'(^|[{;])[[:space:]]+go |\<chan\>|"(golang.org/x/)?sync["/]' cmd internal))))
RACE_PROGRAMS := $(CURDIR)/.cache/race

# The race detector needs cgo, and so a C compiler, which nothing else here does. A test of test/integration in which a controller and its
# workers do most at once is called TestRace...
.PHONY: race
race: cluster-tools race-build ## Run what does something at once under the race detector (needs a C compiler: gcc, or CC)
	GOGC=$(TEST_GOGC) $(WITH_SERVER) env CGO_ENABLED=1 go test $(TEST_FLAGS) -race -short $(RACE_PACKAGES)
	KUBE_NODE_READY_PROGRAMS="$(RACE_PROGRAMS)" GOGC=$(TEST_GOGC) go test $(TEST_FLAGS) -run '^TestRace' ./test/integration

.PHONY: race-build
race-build: # Compile what make race runs.
	@CGO_ENABLED=1 go list -race -test -deps -export -f '{{""}}' $(RACE_PACKAGES) >/dev/null
	$(call build_program,kube-node-ready-controller,./cmd/controller,$(RACE_PROGRAMS),CGO_ENABLED=1 go build -race -buildvcs=false -ldflags "-s -w")
	$(call build_program,kube-node-ready-worker,./cmd/worker,$(RACE_PROGRAMS),CGO_ENABLED=1 go build -race -buildvcs=false -ldflags "-s -w")

BIN ?= bin
COMPLETION := cmd/kubectl-node_ready/kubectl_complete-node_ready

.PHONY: build
build: binaries ## Build the binaries into bin/, stamped with version, commit and date
	$(call build_program,kubectl-node_ready,./cmd/kubectl-node_ready,$(BIN),$(GO_BUILD))
	@cmp -s $(COMPLETION) $(BIN)/kubectl_complete-node_ready || install -m 755 $(COMPLETION) $(BIN)/kubectl_complete-node_ready

.PHONY: build-all
build-all: build

# What the image holds.
.PHONY: binaries
binaries: build-controller build-worker

.PHONY: build-controller
build-controller: ## Build the controller alone
	$(call build_program,kube-node-ready-controller,./cmd/controller,$(BIN),$(GO_BUILD))

# Under the name kube-node-ready the worker is its daemonset command.
.PHONY: build-worker
build-worker: ## Build the worker alone, under both of its names
	$(call build_program,kube-node-ready-worker,./cmd/worker,$(BIN),$(GO_BUILD))
	@[ $(BIN)/kube-node-ready-worker -ef $(BIN)/kube-node-ready ] || ln -f $(BIN)/kube-node-ready-worker $(BIN)/kube-node-ready

# The image's platforms: make image ARCH=amd64,arm64
ARCH ?= $(shell go env GOARCH)

.PHONY: image
image: ## Pack the container image, and the worker's alone, into dist/ as OCI archives, without a container engine
	@cd test/image && GOARCH= go run . --version "$(VERSION)" --arch "$(ARCH)" --out "$(CURDIR)/dist/kube-node-ready-$(VERSION).oci.tar"
	@cd test/image && GOARCH= go run . --version "$(VERSION)" --arch "$(ARCH)" --target worker --out "$(CURDIR)/dist/kube-node-ready-worker-$(VERSION).oci.tar"

# The engine and the image's name, as docker-build has them. DOCKER_TAG is another name of IMAGE_TAG.
DOCKER ?= docker
REGISTRY ?= ghcr.io/kube-node-ready
IMAGE_NAME ?= kube-node-ready
DOCKER_TAG ?= $(VERSION)
IMAGE_TAG ?= $(DOCKER_TAG)

DOCKER_BUILD = $(DOCKER) build --build-arg VERSION=$(VERSION) --build-arg COMMIT_HASH=$(COMMIT_HASH) --build-arg BUILD_DATE=$(BUILD_DATE)

.PHONY: docker-build
docker-build: ## Build the same images with a container engine (DOCKER=podman, REGISTRY, IMAGE_NAME, IMAGE_TAG)
	$(DOCKER_BUILD) -t $(REGISTRY)/$(IMAGE_NAME):$(IMAGE_TAG) .
	$(DOCKER_BUILD) --target worker -t $(REGISTRY)/$(IMAGE_NAME)-worker:$(IMAGE_TAG) .

.PHONY: docker-push
docker-push: docker-build ## Push these images (the same variables)
	$(DOCKER) push $(REGISTRY)/$(IMAGE_NAME):$(IMAGE_TAG)
	$(DOCKER) push $(REGISTRY)/$(IMAGE_NAME)-worker:$(IMAGE_TAG)

# make manifest NAMESPACE=verification VALUES="--values my.yaml --set rules.enabled=false"
NAMESPACE ?= kube-node-ready
VALUES ?=
MANIFEST ?= dist/kube-node-ready.yaml

.PHONY: manifest
manifest: ## Render the chart into dist/kube-node-ready.yaml, for kubectl apply (NAMESPACE, VALUES)
	@$(TOOLS) helm
	@mkdir -p $(dir $(MANIFEST))
	@{ printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$(NAMESPACE)"; \
		.cache/tools/bin/helm template kube-node-ready $(CHART) --namespace "$(NAMESPACE)" --no-hooks $(VALUES); } >$(MANIFEST).new
	@mv $(MANIFEST).new $(MANIFEST)

.PHONY: bench-worker
bench-worker: cluster-tools build ## Measure the worker: time over its slowest check, memory, size
	@mkdir -p .cache/bin
	@go build -tags bench -o .cache/bin/benchworker ./test/benchworker
	@.cache/bin/benchworker

# Which cases, and how often: make bench CASES="burst-5000 idle-5000" TURNS=3
CASES ?=
TURNS ?= 5
BENCH_RESULTS := docs/bench

.PHONY: bench
bench: cluster-tools build ## Measure the controller against the floor, into docs/bench (CASES=names, TURNS=5)
	@$(TOOLS) helm
	@mkdir -p .cache/bin
	@go build -tags bench -o .cache/bin/bench ./test/bench
	@.cache/bin/bench -turns $(TURNS) -out $(BENCH_RESULTS) $(CASES)

.PHONY: bench-check
bench-check: cluster-tools ## Fail if a node costs more writes, reads, events or pods than before; a minute of the bench
	@$(MAKE) --no-print-directory build BIN="$(TEST_PROGRAMS)" VERSION=test COMMIT_HASH=none SOURCE_DATE_EPOCH=0
	KUBE_NODE_READY_PROGRAMS="$(TEST_PROGRAMS)" go test $(TEST_FLAGS) -tags bench ./test/bench ./test/benchworker

DURATION ?= 30m

.PHONY: soak
soak: cluster-tools build ## Have 500 nodes come and go for DURATION (30m); fail if memory or goroutines grow
	@mkdir -p .cache/bin
	@go build -tags bench -o .cache/bin/bench ./test/bench
	@.cache/bin/bench -turns 1 -duration $(DURATION) soak-500

.PHONY: bench-plots
bench-plots: ## Draw what make bench has measured
	@cd test/benchplot && go run . "$(CURDIR)/$(BENCH_RESULTS)"

.PHONY: unit
unit: cluster-tools ## Run the tests beside the code, those on an API server among them
	GOGC=$(TEST_GOGC) $(WITH_SERVER) go test $(TEST_FLAGS) -p $(TEST_PACKAGES) ./internal/... ./cmd/...

FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: ## Fuzz every parser of untrusted or hand-written input, FUZZTIME each
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' internal | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$file); do \
			echo "$$target in $$(dirname $$file)"; \
			go test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x </dev/null; \
		done; \
	done

FIRST ?= 0
SEEDS ?= 10
AT_ONCE ?= 2

.PHONY: chaos
chaos: cluster-tools ## Run the controller under SEEDS random schedules of faults from FIRST on, AT_ONCE beside each other
	@$(TOOLS) helm
	FIRST=$(FIRST) SEEDS=$(SEEDS) AT_ONCE=$(AT_ONCE) go test ./test/chaos -run TestSeeds -count=1 -timeout 12h -v

PLANTED ?=

.PHONY: chaos-planted
chaos-planted: cluster-tools ## Show that make chaos finds every planted bug (PLANTED=part of a name)
	@$(TOOLS) helm
	PLANTED=$(PLANTED) go test ./test/chaos -run TestPlanted -count=1 -timeout 12h -v

.PHONY: repair-tools
repair-tools: ## Build what make repair runs on: Cluster API, Karpenter, node-problem-detector (minutes, once)
	@$(TOOLS) $(REPAIR_TOOLS)

.PHONY: repair
repair: repair-tools ## Show real repairers acting on a node's condition, on a real API server
	@$(MAKE) --no-print-directory build BIN="$(TEST_PROGRAMS)" VERSION=test COMMIT_HASH=none SOURCE_DATE_EPOCH=0
	KUBE_NODE_READY_PROGRAMS="$(TEST_PROGRAMS)" go test -tags repair -count=1 -v -parallel 8 -timeout 20m ./test/repair

.PHONY: repair-node
repair-node: e2e-ready repair-tools ## Show a detector's accusation and a reboot on a real kubelet (root, Debian)
	KUBE_NODE_READY_PROGRAMS="$(E2E_PROGRAMS)" E2E_IMAGE=$(E2E_IMAGE) go test -tags repair -count=1 -v -timeout 10m -run TestDetectorAndRebootOfARealNode ./test/repair

MUTANTS ?=

.PHONY: mutants
mutants: cluster-tools ## Show that the tests beside the code find planted bugs and mutants (MUTANTS=part of a name, planted/ for those alone)
	MUTANTS="$(MUTANTS)" $(WITH_SERVER) go test ./test/mutants -run TestMutants -count=1 -timeout 12h -v

# Packages of the module with all that build tags hide, and the nested modules, each with its tests.
.PHONY: compile
compile: ## Check formatting, and compile and vet everything, tests and nested modules too; needs Go alone
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	go vet -tags e2e,repair,bench ./...
	@status=0; for module in $(NESTED); do echo "cd $$module && go vet ./..."; (cd $$module && go vet ./...) || status=1; done; exit $$status

# Another clone may be linted at the same time.
GOLANGCI_LINT := $(CURDIR)/.cache/tools/bin/golangci-lint run --allow-parallel-runners

.PHONY: lint
lint: ## Check with golangci-lint, go vet and the format among it
	@$(TOOLS) golangci-lint
	$(GOLANGCI_LINT) --build-tags e2e,repair,bench ./...
	@set -e; for module in $(NESTED); do echo "cd $$module && golangci-lint run"; (cd $$module && $(GOLANGCI_LINT) ./...); done

.PHONY: fmt
fmt: ## Format the Go files
	@$(TOOLS) golangci-lint
	.cache/tools/bin/golangci-lint fmt ./...

.PHONY: generate
generate: ## Generate the NodeReadinessRule's definition and deep copies from its Go types
	@$(TOOLS) controller-gen
	@$(GENERATE) output:crd:dir=$(CRD_DIR) output:object:dir=internal/api/readiness/v1alpha1
	@mv $(CRD_DIR)/readiness.node.x-k8s.io_nodereadinessrules.yaml $(CRD_DIR)/nodereadinessrules.yaml

CRD_DIR := deploy/helm/kube-node-ready/files
GENERATE := .cache/tools/bin/controller-gen object crd:maxDescLen=1000 paths=./internal/api/...

HELM_DOCS := .cache/tools/bin/helm-docs --chart-search-root $(CHART) --sort-values-order file --log-level warning

.PHONY: docs
docs: ## Write the pages that are generated from the sources, and draw the pictures
	go run ./internal/config/docgen
	go run ./internal/metrics/docgen
	@$(TOOLS) helm-docs d2
	$(HELM_DOCS)
	go run ./test/docs/pictures .cache/tools/bin/d2

.PHONY: docs-check
docs-check: ## Fail if a generated page or a picture is not what the sources say, or a text has long sentences or lines
	go run ./internal/config/docgen -check
	go run ./internal/metrics/docgen -check
	@$(TOOLS) helm-docs
	go test ./test/docs/prose ./test/docs/pictures
	@$(HELM_DOCS) --dry-run | diff $(CHART)/README.md - || { echo "$(CHART)/README.md is not what its template and values.yaml say: make docs"; exit 1; }

.PHONY: tools
tools: ## Build what make test runs on: Kubernetes, etcd, CoreDNS, Helm, promtool (minutes, once)
	@$(TOOLS) $(TEST_TOOLS)

.PHONY: cluster-tools
cluster-tools: ## Build what make demo runs on: Kubernetes' control plane, etcd, CoreDNS (minutes, once)
	@$(TOOLS) $(CLUSTER_TOOLS)

.PHONY: e2e-tools
e2e-tools: ## Build what real nodes run on: kubelet, kube-proxy, containerd, Karpenter (minutes, once)
	@$(TOOLS) $(E2E_TOOLS)

# The image must have the name that the chart's defaults give it, and the plugin its version: they are not what is in bin.
E2E_PROGRAMS := $(CURDIR)/.cache/e2e
E2E_IMAGE := $(CURDIR)/.cache/realnode/kube-node-ready.tar
E2E_WORKER_IMAGE := $(CURDIR)/.cache/realnode/kube-node-ready-worker.tar
E2E_PACKER := $(CURDIR)/.cache/bin/image
CHART_APP_VERSION = $(shell sed -n 's/^appVersion: *//p' $(CHART)/Chart.yaml)

.PHONY: e2e-ready
e2e-ready: e2e-tools
	@$(MAKE) --no-print-directory build BIN="$(E2E_PROGRAMS)" VERSION=$(CHART_APP_VERSION)
	@test/cluster/realnode/packages.sh
	@test/cluster/realnode/build.sh
	@mkdir -p .cache/bin && cd test/image && GOARCH= go build -o "$(E2E_PACKER)" .
	@cd test/image && GOARCH= "$(E2E_PACKER)" --version "$(CHART_APP_VERSION)" --arch "$$(go env GOARCH)" --out "$(E2E_IMAGE)"
	@cd test/image && GOARCH= "$(E2E_PACKER)" --version "$(CHART_APP_VERSION)" --arch "$$(go env GOARCH)" --target worker --out "$(E2E_WORKER_IMAGE)"

.PHONY: e2e
e2e: e2e-ready ## Prove it end to end on real nodes, with Karpenter and Prometheus (root, Debian; CASE=smoke or a regexp runs some)
	@$(MAKE) --no-print-directory e2e-run

# Without a look at the tools, which waits for whoever builds others.
.PHONY: e2e-run
e2e-run:
	KUBE_NODE_READY_PROGRAMS="$(E2E_PROGRAMS)" E2E_IMAGE=$(E2E_IMAGE) E2E_WORKER_IMAGE=$(E2E_WORKER_IMAGE) E2E_PACKER=$(E2E_PACKER) go test $(TEST_FLAGS) -timeout 45m -tags e2e -count=1 -v -run 'TestEndToEnd$(if $(filter-out smoke,$(CASE)),/(three|Prometheus|$(CASE)))' ./test/e2e $(if $(filter smoke,$(CASE)),-args -smoke)

.PHONY: cluster
cluster: e2e-ready build ## Bring up a cluster of three real nodes to play with (root, Debian)
	@mkdir -p .cache/bin
	@go build -o .cache/bin/realcluster ./test/cluster/realnode/realcluster
	@.cache/bin/realcluster up -image .cache/realnode/pause.tar -image .cache/realnode/coredns.tar -image $(E2E_IMAGE)

.PHONY: cluster-down
cluster-down: ## Take away the cluster of make cluster, and whatever a crash left behind
	@mkdir -p .cache/bin
	@go build -o .cache/bin/realcluster ./test/cluster/realnode/realcluster
	@.cache/bin/realcluster down

# What a release has: the image, and files beside it. docs/design/release.md says how it is made, and what of that was tried.
CHART_VERSION = $(shell sed -n 's/^version: *//p' $(CHART)/Chart.yaml)
RELEASE_TOOLS := goreleaser syft helm

.PHONY: release-files
release-files: # The images of both architectures, their SBOMs, and the chart's package.
	@$(TOOLS) $(RELEASE_TOOLS)
	@rm -rf dist/files && mkdir -p dist/files
	@$(MAKE) --no-print-directory image ARCH=amd64,arm64 VERSION=$(CHART_APP_VERSION)
	@for image in kube-node-ready kube-node-ready-worker; do for arch in amd64 arm64; do \
		SYFT_CHECK_FOR_APP_UPDATE=false .cache/tools/bin/syft scan --quiet --platform linux/$$arch oci-archive:dist/$$image-$(CHART_APP_VERSION).oci.tar \
		--source-name $$image --source-version $(CHART_APP_VERSION) --output spdx-json=dist/files/$$image-linux-$$arch.spdx.json || exit; done; done
	@.cache/tools/bin/helm package $(CHART) --destination dist/files
	@$(MAKE) --no-print-directory manifest MANIFEST=dist/files/kube-node-ready.yaml

GORELEASER = SYFT_CHECK_FOR_APP_UPDATE=false CHART_VERSION=$(CHART_VERSION) PATH="$(CURDIR)/.cache/tools/bin:$$PATH" .cache/tools/bin/goreleaser release --clean

.PHONY: release-dry-run
release-dry-run: release-files ## Make all that a release publishes into dist/, and publish nothing; needs no network once the tools are built
	$(GORELEASER) --snapshot --skip=publish,sign

.PHONY: release
release: release-files # Publish the files of a tag; for the workflow of a release.
	@[[ "$$(git describe --tags --exact-match)" == "$(CHART_APP_VERSION)" && "$(CHART_APP_VERSION)" == "v$(CHART_VERSION)" ]] || \
		{ echo "the tag, and version and appVersion of $(CHART)/Chart.yaml, must be the same release" >&2; exit 1; }
	$(GORELEASER)

.PHONY: govulncheck
govulncheck: ## Look for known vulnerabilities in what the binaries call (asks vuln.go.dev)
	@$(TOOLS) govulncheck
	.cache/tools/bin/govulncheck ./cmd/...

.PHONY: nightly
nightly: ## Run what takes too long for each change: hours, as root (.ci/nightly STAGE... runs some stages)
	@.ci/nightly

.PHONY: clean
clean: ## Remove what was built here; the tools stay
	rm -rf bin dist .cache/bin .cache/e2e .cache/race .cache/test

.PHONY: distclean
distclean: clean ## Remove the built tools of all clones too (not what Go keeps compiled: go clean -cache)
	rm -rf .cache "$(or $(CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kube-node-ready)"
