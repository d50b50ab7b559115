package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Failures of SQL, and of processes between a claim and its result: nothing is sent twice or lost.

// A database that rejects writes but answers probes neither fills the log nor causes endless probes, and
// loses nothing.
func TestSQLHalfDown(t *testing.T) {
	var log lines
	with(takes(time.Second), log.log).run(t, func(b *fixture) {
		var flying []string
		for range 20 {
			flying = append(flying, b.accept(accept.Submission{}).ID)
		}
		time.Sleep(500 * time.Millisecond)
		b.set(fail(errDown), "Accept", "Commit")
		before, pings := log.n.Load(), b.count("Ping")
		for range 60 * 100 {
			time.Sleep(10 * time.Millisecond)
			b.refuses()
		}
		between(b, "lines in a minute", log.n.Load()-before, 1, 20)
		between(b, "probes in a minute", b.count("Ping")-pings, 0, 60*5)
		b.set(nil, "Accept", "Commit")
		b.ends("succeeded 1", 10*time.Second, flying...)
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// After an outage that was longer than the claims, all results are committed before the next claim. Otherwise
// a callback whose result still waits would be claimed and sent again.
func TestResultsOfAnOutageComeBeforeClaims(t *testing.T) {
	with(takes(time.Second)).run(t, func(b *fixture) {
		first, later := b.accept(accept.Submission{}).ID, b.accept(in(500*time.Millisecond)).ID
		time.Sleep(900 * time.Millisecond)
		b.set(fail(errDown), "Commit")
		time.Sleep(10 * time.Minute)
		commits := 0
		b.set(func(_ context.Context, c *call) error {
			commits++
			if commits > 1 {
				time.Sleep(2 * time.Second)
			}
			return c.do()
		}, "Commit")
		b.ends("succeeded 1", 10*time.Second, first, later)
		b.sent(2, "after the outage")
	})
}

// refuses checks that an accept fails with ErrUnavailable.
func (b *fixture) refuses() {
	b.Helper()
	_, err := b.engine.Accept(b.Context(), project, completed(make([]accept.Submission, 1)))
	if !errors.Is(err, store.ErrUnavailable) {
		b.Fatalf("accepted without SQL: %v", err)
	}
}

// An uncertain stamp that cannot be undone does not block the other callbacks after an outage of SQL.
func TestUncertainStampThatCannotBeUndone(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		bad, good := b.accept(in(5*time.Second)).ID, b.accept(in(8500*time.Millisecond)).ID
		b.set(func(_ context.Context, c *call) error {
			if slices.ContainsFunc(c.args[0].(store.Stamp).Claims,
				func(c store.StampClaim) bool { return c.ID == bad }) {
				return errors.New("stamp: invalid page in a block")
			}
			return c.do()
		}, "Stamp")
		time.Sleep(6 * time.Second) // a stamp has failed
		b.set(fail(errDown), "Accept")
		b.refuses()
		b.set(nil, "Accept")
		b.ends("succeeded", 2*time.Minute, good)
		b.set(nil, "Stamp")
		b.ends("succeeded", 2*time.Minute, bad)
	})
}

// A secret that SQL does not return postpones the attempt. It is no failure to sign, which would be in the
// callback's history.
func TestSecretsWithoutSQL(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.set(fail(errDown), "OwnedSecrets")
		id := b.accept(accept.Submission{}).ID
		time.Sleep(30 * time.Second)
		b.check(b.count("OwnedSecrets") > 2, "it was not tried again")
		b.is("attempts", len(b.attempts(id)), 0)
		b.set(nil, "OwnedSecrets")
		b.ends("succeeded 1", 10*time.Second, id)
	})
}

// A process without work notices that SQL is down, so that an alert fires before a callback is refused.
func TestIdleProcessReportsThatSQLIsDown(t *testing.T) {
	registry := prometheus.NewRegistry()
	with(nil, func(o *options) { o.Registerer = registry }).run(t, func(b *fixture) {
		for _, answer := range []struct {
			set  func(context.Context, *call) error
			want float64
		}{{nil, 0}, {fail(errDown), 1}, {nil, 0}} {
			b.set(answer.set, "Ping")
			time.Sleep(10 * time.Second)
			b.is("sql_down", metricOf(t, registry, "dispatcher_sql_down"), answer.want)
		}
	})
}

// A caller of Health that gives up does not make the next call report that SQL is down.
func TestHealthSurvivesACanceledCaller(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(2 * time.Second)
		gone, cancel := context.WithCancel(b.Context())
		cancel()
		b.engine.Health(gone)
		b.is("health", b.health(), "ready")
	})
}
