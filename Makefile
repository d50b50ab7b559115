# `make` lists the targets. Every command uses the same build tag and no -trimpath, so that they share one build cache:
# the first build compiles everything (70 to 90 seconds on two cores), the ones after it take about two. What is only tried
# and tested is built without cmd/dispatcher/default.pgo: with it everything is compiled once more.

SHELL   := /bin/bash
TAGS    := nomsgpack
VERSION ?= dev
IMAGE   ?= dispatcher:$(VERSION)
RUNDIR  ?= dispatcher-data
SEEDS   ?= 10000
FIRST   ?= 1
GO      := go
TOOL     = $(GO) tool -modfile=$(CURDIR)/tools/go.mod
# The benchmark is a module of its own: commands on packages begin there.
BENCH   := cd e2e/bench &&
ROWS    ?= 10000000
PENDING ?= 5000000
RUNBENCH = $(BENCH) $(GO) run -tags $(TAGS) .
# What bench-pair compares: two revisions, where . is this checkout with its changes; FLAGS are further ones of its own.
A        ?= HEAD
B        ?= .
SYSTEMS  ?= sqlite
PHASES   ?= drain
PAIRS    ?= 15

export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo run build test test-full test-long setup test-short vet staticcheck screens simulate bench bench-quick bench-pair bench-scale profile lint fmt verify licenses sbom vulncheck reproducible docker digests clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Show it at work: an embedded server, a flaky receiver, 30 payments and their retries, a poll
	@echo "building (the first time takes 70 to 90 seconds) ..."
	@$(GO) run -pgo=off -tags $(TAGS) ./cmd/dispatcher demo

run: ## Serve on the embedded default (SQLite, in-process index) with ./dispatcher-data; may send to 127.0.0.1
	@echo "building (the first time takes 70 to 90 seconds) ..."
	@$(GO) run -pgo=off -tags $(TAGS) ./cmd/dispatcher serve --data-dir $(RUNDIR) --egress-allow 127.0.0.1/32

build: ## Build ./bin/dispatcher: one static binary
	$(GO) build -tags $(TAGS) -ldflags "-X main.version=$(VERSION)" -o bin/dispatcher ./cmd/dispatcher

# PART=smoke runs one part alone; `go run ./internal/testrun -list test` lists them.
TESTRUN = $(GO) run ./internal/testrun $(if $(PART),-part $(PART))

test: setup ## The test command: vet, staticcheck, unit tests, real servers, race detector, smoke tests; ten minutes
	@$(TESTRUN) test

test-full: setup ## Everything in its full size: faults, races, crowds, simulations, pages; an hour; writes docs/reports/faults.md
	@$(TESTRUN) full

test-long: setup ## What takes longer than an hour: trials over two minutes each, fuzzing, a million rows
	@$(TESTRUN) long

setup: ## Install what the tests need (Debian, as root) or say what is missing
	@tools/setup.sh

test-short: ## The tests that need nothing but Go
	$(GO) test -pgo=off -tags $(TAGS) -short ./...

vet: ## go vet, for the normal build and for the build with failpoints
	$(GO) vet -tags $(TAGS) ./...
	$(GO) vet -tags "$(TAGS) failpoints" ./...
	$(BENCH) $(GO) vet -tags $(TAGS) ./...
	cd tools && $(GO) vet ./...

staticcheck: ## staticcheck, from tools/go.mod
	$(TOOL) staticcheck -tags $(TAGS) ./...
	$(BENCH) $(TOOL) staticcheck -tags $(TAGS) ./...
	cd tools && $(TOOL) staticcheck ./...

verify: ## Compare the modules in the cache with the checksums in go.sum, for all three go.mod
	$(GO) mod verify
	$(BENCH) $(GO) mod verify
	cd tools && $(GO) mod verify

licenses: ## The licence of every module of go.mod; writes docs/reports/licenses.md
	$(GO) -C tools run ./licenses -table $(CURDIR)/docs/reports/licenses.md

sbom: build ## What ./bin/dispatcher is made of: bin/dispatcher.cdx.json (CycloneDX) and bin/licenses.txt
	tools/sbom.sh bin/dispatcher $(VERSION) bin

vulncheck: setup ## Known vulnerabilities in what the program calls, by govulncheck; fails if it cannot find out
	@tools/vulncheck.sh

reproducible: ## Build twice as the Dockerfile does, in two directories, and compare the bytes
	@tools/reproducible.sh

screens: setup ## A picture of every admin page, empty, with one and with many, in light, dark and on a phone, under ./screens
	$(GO) test -tags $(TAGS) -count=1 -timeout 20m -run '^TestBrowserEveryPageIsWellMade$$' ./e2e/browser -args -screens $(CURDIR)/screens

bench: setup ## Compare with HTTP alone, asynq and River, as ratios; 12 quiet minutes; writes docs/reports/performance.md
	$(RUNBENCH) compare -report $(CURDIR)/docs/reports/performance.md

bench-quick: setup ## One round of it with fewer callbacks, two minutes; prints and writes nothing
	$(RUNBENCH) compare -rounds 1 -n 10000

# The worktrees of the two revisions lie in the temporary directory, and git forgets them with it.
bench-pair: setup ## Compare two revisions in turns: A=HEAD B=. (this checkout) SYSTEMS=sqlite PHASES=drain PAIRS=15
	@set -e; dir=$$(mktemp -d); trap "rm -rf $$dir; git worktree prune" EXIT; \
	build() { src=$(CURDIR); \
	  if [ "$$2" != . ]; then src=$$dir/$$1.src; git worktree add --quiet --detach $$src $$2; fi; \
	  (cd $$src; $(GO) build -tags $(TAGS) -o $$dir/$$1 ./cmd/dispatcher); }; \
	build a $(A); build b $(B); \
	$(RUNBENCH) pair -a $$dir/a -b $$dir/b -pairs $(PAIRS) -systems $(SYSTEMS) -phases $(PHASES) $(FLAGS)

bench-scale: setup ## Ten million callbacks (ROWS=, PENDING=), several dispatchers: two hours, 45 GB; writes docs/reports/performance.md and scaling.md
	$(RUNBENCH) scale -rows $(ROWS) -pending $(PENDING) -reports $(CURDIR)/docs/reports

profile: setup ## Measure anew what builds are optimized by, five quiet minutes; writes cmd/dispatcher/default.pgo
	$(RUNBENCH) compare -rounds 3 -n 100000 -systems sqlite,postgres -phases drain,single \
	  -pgo $(CURDIR)/cmd/dispatcher/default.pgo

simulate: ## Simulations under faults, any number: SEEDS=100000, from FIRST=1 on; one that fails prints how to replay it
	$(GO) test -tags $(TAGS) -count=1 -timeout 24h -run '^TestSimulation$$' -v ./dispatch -args -seeds $(SEEDS) -seed $(FIRST) \
	  | grep -vE '^ *(=== |--- PASS)'; exit $${PIPESTATUS[0]}

lint: ## golangci-lint with .golangci.yml (fetches it on the first run)
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --build-tags $(TAGS)

fmt: ## gofmt every file
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

docker: ## Build the container image
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

digests: ## Ask the registries for the digests of the base images; writes the Dockerfile
	tools/digests.sh

clean: ## Remove what was built (not dispatcher-data)
	rm -rf bin
