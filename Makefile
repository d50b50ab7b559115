# `make` lists the targets. Every command uses the same build tag and no -trimpath, so that all share one
# build cache: the first build takes one to two minutes on two cores, a later one about two seconds. Tests do
# without cmd/dispatcher/default.pgo, because with it everything is compiled a second time.

SHELL   := /bin/bash
TAGS    := nomsgpack
VERSION ?= dev
IMAGE   ?= dispatcher:$(VERSION)
RUNDIR  ?= dispatcher-data
SEEDS   ?= 10000
FIRST   ?= 1
GO      := go
TOOL     = $(GO) tool -modfile=$(CURDIR)/tools/go.mod
# These are separate modules, so they are built from their directories.
BENCH   := cd e2e/bench &&
CHECK   := cd deploy/check &&
OUTBOX  := cd outbox &&
TRIAL   := cd e2e/outbox &&
ROWS    ?= 10000000
PENDING ?= 5000000
RUNBENCH = $(BENCH) $(GO) run -tags $(TAGS) .
# bench-pair compares revisions A and B; . is this checkout with its changes. FLAGS go to the benchmark.
A        ?= HEAD
B        ?= .
SYSTEMS  ?= sqlite
PHASES   ?= drain
PAIRS    ?= 15

export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo run build test test-full test-long setup setup-full test-short vet staticcheck screens \
	simulate bench bench-quick bench-pair bench-scale profile lint fmt verify licenses sbom vulncheck \
	reproducible packages docker digests clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Show it at work: an embedded server, a flaky receiver, 30 payments and their retries, a poll
	@echo "building (the first time takes one to two minutes) ..."
	@$(MAKE) --no-print-directory -s build
	@bin/dispatcher demo

run: ## Serve with SQLite and the embedded index in ./dispatcher-data; may send to 127.0.0.1
	@echo "building (the first time takes one to two minutes) ..."
	@$(MAKE) --no-print-directory -s build
	@bin/dispatcher serve --data-dir $(RUNDIR) --egress-allow 127.0.0.1/32

build: ## Build ./bin/dispatcher: one static binary
	$(GO) build -tags $(TAGS) -ldflags "-X main.version=$(VERSION)" -o bin/dispatcher ./cmd/dispatcher

# PART=smoke runs one part alone; `go run ./internal/testrun -list test` lists them.
TESTRUN = $(GO) run ./internal/testrun $(if $(PART),-part $(PART))

test: setup ## vet, staticcheck, unit tests, real servers, race detector and smoke tests; fifteen minutes
	@$(TESTRUN) test

test-full: setup-full ## All faults, races, simulations and pages; two hours; writes docs/reports/faults.md
	@$(TESTRUN) full

test-long: setup ## Trials of over two minutes each, fuzzing, a million rows; hours
	@$(TESTRUN) long

setup: ## Install what the tests need (Debian, as root) or say what is missing
	@tools/setup.sh

setup-full: ## Install what make test-full needs in addition
	@tools/setup.sh full

test-short: ## The tests that need nothing but Go
	$(GO) test -pgo=off -tags $(TAGS) -short ./...

vet: ## go vet, for the normal build and for the build with failpoints
	$(GO) vet -tags $(TAGS) ./...
	$(GO) vet -tags "$(TAGS) failpoints" ./...
	$(BENCH) $(GO) vet -tags $(TAGS) ./...
	$(CHECK) $(GO) vet -tags $(TAGS) ./...
	$(OUTBOX) $(GO) vet ./...
	$(TRIAL) $(GO) vet -tags $(TAGS) ./...
	cd tools && $(GO) vet ./...

staticcheck: ## staticcheck, from tools/go.mod
	$(TOOL) staticcheck -tags $(TAGS) ./...
	$(BENCH) $(TOOL) staticcheck -tags $(TAGS) ./...
	$(CHECK) $(TOOL) staticcheck -tags $(TAGS) ./...
	$(OUTBOX) $(TOOL) staticcheck ./...
	$(TRIAL) $(TOOL) staticcheck -tags $(TAGS) ./...
	cd tools && $(TOOL) staticcheck ./...

verify: ## Compare the modules in the cache with the checksums in go.sum, for all go.mod
	$(GO) mod verify
	$(BENCH) $(GO) mod verify
	$(CHECK) $(GO) mod verify
	$(OUTBOX) $(GO) mod verify
	$(TRIAL) $(GO) mod verify
	cd tools && $(GO) mod verify

licenses: ## List the license of every module; writes docs/reports/licenses.md
	$(GO) -C tools run ./licenses -table $(CURDIR)/docs/reports/licenses.md

sbom: build ## List the modules of ./bin/dispatcher: bin/dispatcher.cdx.json (CycloneDX), bin/licenses.txt
	tools/sbom.sh bin/dispatcher $(VERSION) bin

packages: ## Make bin/packages/*.deb and *.rpm for VERSION=v1.2.3
	$(GO) build -trimpath -buildvcs=false -tags $(TAGS) \
	  -ldflags "-s -w -X main.version=$(VERSION) -X main.revision=$$(git rev-parse HEAD)" \
	  -o bin/packages/dispatcher ./cmd/dispatcher
	tools/packages.sh bin/packages/dispatcher $(VERSION) bin/packages

vulncheck: setup ## Look for known vulnerabilities with govulncheck; an unreachable database is a failure
	@tools/vulncheck.sh

reproducible: ## Build twice as the Dockerfile does, in two directories, and compare the bytes
	@tools/reproducible.sh

screens: setup ## Take pictures of all admin pages, three widths, both languages, empty and full, in ./screens
	$(GO) test -tags $(TAGS) -count=1 -timeout 20m -run '^TestBrowserEveryPageIsWellMade$$' ./e2e/browser \
	  -args -screens $(CURDIR)/screens

bench: setup ## Compare with plain HTTP, asynq and River; 12 quiet minutes; writes docs/reports/performance.md
	$(RUNBENCH) compare -report $(CURDIR)/docs/reports/performance.md

bench-quick: setup ## One round with fewer callbacks, two minutes; prints the result
	$(RUNBENCH) compare -rounds 1 -n 10000

# The worktrees of the two revisions are in the temporary directory; git prunes them when it is removed.
bench-pair: setup ## Compare two revisions in turns: A=HEAD B=. SYSTEMS=sqlite PHASES=drain PAIRS=15
	@set -e; dir=$$(mktemp -d); trap "rm -rf $$dir; git worktree prune" EXIT; \
	build() { src=$(CURDIR); \
	  if [ "$$2" != . ]; then src=$$dir/$$1.src; git worktree add --quiet --detach $$src $$2; fi; \
	  (cd $$src; $(GO) build -tags $(TAGS) -o $$dir/$$1 ./cmd/dispatcher); }; \
	build a $(A); build b $(B); \
	$(RUNBENCH) pair -a $$dir/a -b $$dir/b -pairs $(PAIRS) -systems $(SYSTEMS) -phases $(PHASES) $(FLAGS)

bench-scale: setup ## Ten million callbacks (ROWS=, PENDING=), two hours, 45 GB; writes two docs/reports
	$(RUNBENCH) scale -rows $(ROWS) -pending $(PENDING) -reports $(CURDIR)/docs/reports

profile: setup ## Record the profile that builds use, five quiet minutes; writes cmd/dispatcher/default.pgo
	$(RUNBENCH) compare -rounds 3 -n 100000 -systems sqlite,postgres -phases drain,single \
	  -pgo $(CURDIR)/cmd/dispatcher/default.pgo

simulate: ## Run SEEDS=10000 simulations under faults, from FIRST=1; a failure prints how to replay it
	$(GO) test -tags $(TAGS) -count=1 -timeout 24h -run '^TestSimulation$$' -v ./dispatch \
	  -args -seeds $(SEEDS) -seed $(FIRST) \
	  | grep -vE '^ *(=== |--- PASS)'; exit $${PIPESTATUS[0]}

lint: ## golangci-lint with .golangci.yml (fetches it on the first run)
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --build-tags $(TAGS)

fmt: ## gofmt every file
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

docker: ## Build the container image
	docker build --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) -t $(IMAGE) .

digests: ## Ask the registries for the digests of the base images; writes the Dockerfile
	tools/digests.sh

clean: ## Remove what was built (not dispatcher-data)
	rm -rf bin
