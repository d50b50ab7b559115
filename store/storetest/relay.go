package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const relayOrigin = "db1:3306/pay/dispatcher_outbox"

// hold renews the lease of a source, whose table is its own.
func (f *fixture) hold(name string, h store.RelayHold) store.RelaySource {
	h.Origin = relayOrigin
	if name != "pay" {
		h.Origin += "_" + name
	}
	return must(f.HoldRelay(f.ctx(), project, name, h, f.now))
}

// testRelayReport follows the reports of a source. What a call leaves out stays as it was.
func testRelayReport(f *fixture) {
	first := store.RelayReport{
		LagMs: 1500, Waiting: 3, RefusedRows: 2, RowsPerSecond: 12.5, Error: "connect: refused",
		Refusals: []store.RelayRefusal{
			{ID: "order-1", Seq: 7, Kind: "callback", Code: "not_json", Problem: "p", RefusedAt: f.now},
			{ID: "订单", Seq: 6, Kind: "x", Code: "unknown_kind", Problem: "q", RefusedAt: f.now - 5},
		},
	}
	f.hold("pay", store.RelayHold{Holder: "a", Report: &first})
	at := f.now
	want := store.RelaySource{Project: project, Name: "pay", Origin: relayOrigin, Holder: "a",
		HeldUntil: at + store.RelayLease, CreatedAt: at, ReportedAt: at, Report: first}
	get := func() store.RelaySource { return must(f.RelaySource(f.ctx(), project, "pay")) }
	same(f, "the first report", want, get())

	f.now += 3000
	f.hold("pay", store.RelayHold{Holder: "a"})
	want.HeldUntil = f.now + store.RelayLease
	same(f, "a renewal without a report", want, get())

	second := store.RelayReport{RefusedRows: 2}
	f.hold("pay", store.RelayHold{Holder: "a", Report: &second, KeepRefusals: true})
	want.ReportedAt, want.Report = f.now, store.RelayReport{RefusedRows: 2, Refusals: first.Refusals}
	same(f, "a report with the same refusals", want, get())
	listed := want
	listed.Report.Refusals = nil
	same(f, "the list", []store.RelaySource{listed}, must(f.RelaySources(f.ctx(), project)))

	_, err := f.HoldRelay(f.ctx(), project, "pay", store.RelayHold{Holder: "b", Origin: relayOrigin,
		Report: &first}, f.now)
	f.fails(store.ErrRelayHeld, "a second relay", err)
	same(f, "after a report of another relay", want, get())

	f.hold("pay", store.RelayHold{Holder: "a", Report: &store.RelayReport{}, Release: true})
	want.Holder, want.HeldUntil, want.Report = "", 0, store.RelayReport{}
	same(f, "released", want, get())
}

// testRelayCrowd has many relays that want one source, also while its row is created: one of them gets it.
func testRelayCrowd(f *fixture) {
	const relays = 8
	for round := range 5 {
		won := 0
		for _, err := range crowd(f, relays, func(i int) error {
			h := store.RelayHold{Holder: fmt.Sprint("relay-", i), Origin: relayOrigin}
			return errOf(f.HoldRelay(f.ctx(), project, "pay", h, f.now))
		}) {
			if err == nil {
				won++
			} else {
				f.fails(store.ErrRelayHeld, "a relay that lost", err)
			}
		}
		same(f, fmt.Sprintf("relays that hold the source in round %d", round), 1, won)
		f.now += store.RelayLease
	}
}

// testRelayNamesCrowd has many names for one table, at once: one of them gets it, and the others learn which.
// Another project may read the table too. Forgetting the name frees the table.
func testRelayNamesCrowd(f *fixture) {
	const names = 8
	holdAs := func(project, name string) error {
		h := store.RelayHold{Holder: name, Origin: relayOrigin}
		return errOf(f.HoldRelay(f.ctx(), project, name, h, f.now))
	}
	errs := crowd(f, names, func(i int) error { return holdAs(project, fmt.Sprint("pay-", i)) })
	won := slices.Index(errs, nil)
	f.require(won >= 0, "no name got the table: %v", errs)
	name := fmt.Sprint("pay-", won)
	for i, err := range errs {
		if i == won {
			continue
		}
		f.fails(store.ErrRelayOrigin, "a second name", err)
		if other, ok := errors.AsType[*store.RelayNamedError](err); !ok || other.Name != name {
			f.Errorf("pay-%d: %v, want the name %s", i, err, name)
		}
	}
	same(f, "sources", 1, len(must(f.RelaySources(f.ctx(), project))))
	f.ok(holdAs("other", "pay-x"))
	f.ok(holdAs(project, name))
	f.now += store.RelayLease
	must(f.ForgetRelay(f.ctx(), project, name, f.now, store.Actor{}))
	f.ok(holdAs(project, "pay-x"))
}

// testRelayMany fills a project with sources: calls at once do not exceed the limit, and those that are there
// stay usable.
func testRelayMany(f *fixture) {
	for i := range store.MaxRelaySources - 3 {
		f.hold(fmt.Sprintf("pay-%04d", i), store.RelayHold{Holder: "a"})
	}
	added := 0
	for _, err := range crowd(f, 8, func(i int) error {
		h := store.RelayHold{Holder: "a", Origin: fmt.Sprint(relayOrigin, i)}
		return errOf(f.HoldRelay(f.ctx(), project, fmt.Sprint("new-", i), h, f.now))
	}) {
		if err == nil {
			added++
		} else {
			f.fails(store.ErrTooManySources, "one too many", err)
		}
	}
	same(f, "added up to the limit", 3, added)
	same(f, "listed", store.MaxRelaySources, len(must(f.RelaySources(f.ctx(), project))))
	f.hold("pay-0000", store.RelayHold{Holder: "a"})
}
