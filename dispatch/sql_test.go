package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What befalls SQL, and processes between a claim and its result: nothing is sent twice for it, and nothing
// is lost.

// While SQL does not commit nothing is claimed, and what was sent is recorded once it does.
func TestSQLDown(t *testing.T) {
	with(takes(time.Second)).run(t, func(b *fixture) {
		down := []string{"Stamp", "Commit", "Ping"}
		flying := b.accept(accept.Submission{}).ID
		time.Sleep(500 * time.Millisecond)
		b.set(fail(errDown), down...)
		waiting := b.accept(accept.Submission{}).ID
		time.Sleep(20 * time.Second)
		b.is("health", b.health(), "SQL cannot commit")
		between(b, "stamps", b.count("Stamp"), 1, 4)
		b.sent(1, "while SQL was down")
		b.set(nil, down...)
		b.ends("succeeded 1", 10*time.Second, flying, waiting)
		b.sent(2, "in all")
	})
}

// A database that fails and answers probes all the same neither fills the log nor is probed without end, and
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
			b.refuses(accept.Submission{})
		}
		between(b, "lines in a minute", log.n.Load()-before, 1, 20)
		between(b, "probes in a minute", b.count("Ping")-pings, 0, 60*5)
		b.set(nil, "Accept", "Commit")
		b.ends("succeeded 1", 10*time.Second, flying...)
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// refuses demands that SQL does not take a callback.
func (b *fixture) refuses(s accept.Submission) {
	b.Helper()
	s.URL, s.Body = "https://shop.example/notify", []byte(`{"paid": 1}`)
	if _, err := b.engine.Accept(b.Context(), project, []accept.Submission{s}); !errors.Is(err,
		store.ErrUnavailable) {
		b.Fatalf("accepted without SQL: %v", err)
	}
}

// A stamp that can never be undone does not keep the others from being sent after SQL was away.
func TestAnUncertainStampThatStays(t *testing.T) {
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
		b.refuses(accept.Submission{})
		b.set(nil, "Accept")
		b.ends("succeeded", 2*time.Minute, good)
		b.set(nil, "Stamp")
		b.ends("succeeded", 2*time.Minute, bad)
	})
}

// Stamps whose replies are lost are no crashes: nothing was sent. Any number of them in a row ends no
// callback and holds up none.
func TestStampsWhoseRepliesAreLostAreUndone(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		for range 8 {
			b.times(1, loseReply, "Stamp")
			id := b.accept(accept.Submission{}).ID
			for range 7 {
				time.Sleep(2500 * time.Millisecond)
				if c := b.get(id); c.CrashCount > 0 || c.ClaimToken != "" {
					t.Fatalf("after a lost reply: crash count %d, token %q", c.CrashCount, c.ClaimToken)
				}
			}
			b.ends("succeeded", time.Second, id)
			b.is("attempts", len(b.attempts(id)), 1)
		}
		b.times(9, loseReply, "Stamp")
		c := b.await(b.accept(accept.Submission{}).ID, time.Minute)
		b.stands(c, "succeeded")
		between(b, "nine lost replies in a row took ms", c.FinishedAt-c.CreatedAt, 0, 30_000)
	})
}

// While results cannot be recorded nothing more is sent, even if all else in SQL works: what was sent would
// be sent again.
func TestNothingIsSentWhileResultsCannotBeRecorded(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		b.set(fail(errDown), "Commit")
		var ids []string
		for range 90 {
			ids = append(ids, b.accept(accept.Submission{}).ID)
			time.Sleep(time.Second)
		}
		between(b, "requests while no result could be recorded", len(b.hits("")), 0, 5)
		b.set(nil, "Commit")
		b.ends("succeeded 1", time.Minute, ids...)
		b.sent(len(ids), "in all")
	})
}

// Results are committed in time although the index hangs that is told of them afterwards: after their claims
// have run out the callbacks would be sent again.
func TestResultsDoNotWaitForAnIndexThatHangs(t *testing.T) {
	var next atomic.Int32
	// They end one after the other, while it hangs.
	slowly := func(ctx context.Context, h hit, before int) (*http.Response, error) {
		return takes(2*time.Second+time.Duration(next.Add(1))*300*time.Millisecond)(ctx, h, before)
	}
	with(slowly).run(t, func(b *fixture) {
		send := func(i int, lock string) string {
			return b.accept(accept.Submission{LockKey: lock, URL: fmt.Sprintf("https://s%d.example/", i)}).ID
		}
		var ids []string
		for i := range 20 {
			ids = append(ids, send(i, fmt.Sprint("k", i)))
		}
		time.Sleep(time.Second)
		b.sent(len(ids), "are in flight")
		b.set(hang, "Settle", "Release", "Stats")
		time.Sleep(15 * time.Second)
		for _, id := range ids {
			c := b.get(id)
			b.stands(c, "succeeded")
			between(b, "ms from the attempt to its commit", c.FinishedAt-b.attempts(id)[0].EndedAt, 0, 1000)
		}
		for i := range 20 {
			send(i, "")
		}
		start := time.Now()
		b.stop()
		between(b, "the end took", time.Since(start), 0, 15*time.Second)
	})
}

// A callback that was accepted without its client hearing of it is on time once the client has asked again,
// and not only when the sweep finds it overdue.
func TestAReplayIsToldToTheIndex(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		s := accept.Submission{IdempotencyKey: "k", Route: "callbacks", Fingerprint: []byte("a"),
			Delay: new(time.Minute)}
		b.times(1, loseReply, "Accept")
		b.refuses(s)
		c := b.accept(s)
		b.await(c.ID, 2*time.Minute)
		between(b, "lateness in ms", b.attempts(c.ID)[0].Lateness, 0, 20)
		again := b.accept(s)
		b.is("asked for once more", again.ID, c.ID)
		b.stands(again, "succeeded")
	})
}

// A probe that hangs up must not make the next one believe that SQL is down.
func TestHealthOutlivesAProbeThatHangsUp(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(2 * time.Second)
		gone, cancel := context.WithCancel(b.Context())
		cancel()
		b.engine.Health(gone)
		b.is("health", b.health(), "ready")
	})
}

// stampAs claims callbacks as a process does that dies then.
func (b *fixture) stampAs(token string, ids ...string) {
	b.Helper()
	var claims []store.StampClaim
	for _, id := range ids {
		claims = append(claims, store.StampClaim{ID: id})
	}
	stamped, _, err := b.db.Stamp(b.Context(),
		store.Stamp{Token: token, Now: b.engine.Now(), Margin: 15_000, Claims: claims})
	b.ok(err)
	b.is("stamped", len(stamped), len(ids))
}

// A process that dies during an attempt charges no attempt: it is recorded as crashed, and made again. It
// counts as unknown, and nothing is known of its time.
func TestCrashInTheMiddleOfAnAttempt(t *testing.T) {
	with(nil, onHold).run(t, func(b *fixture) {
		id := b.accept(accept.Submission{}).ID
		b.stampAs("of-a-process-that-died", id)
		time.Sleep(time.Second) // it has begun
		b = b.restart(nil)
		b.ends("succeeded 1", time.Minute, id)
		rows := b.attempts(id)
		b.check(len(rows) == 2 && rows[0].Class == store.ClassCrashed &&
			rows[0].Outcome == store.AttemptUnknown &&
			!rows[0].Charged && rows[1].Class == store.ClassOK, "attempts: %+v", rows)
		b.stopRun()
		b.counted(store.Activity{Accepted: 1, Succeeded: 1, Unknown: 1}, 1, 1)
	})
}

// Callbacks that were in flight at two crashes in a row are attempted one after the other, so that the next
// crash says which of them it was; what was in flight at none is not held up by them.
func TestSuspectsAreAttemptedOneByOne(t *testing.T) {
	with(nil, onHold).run(t, func(b *fixture) {
		var ids []string
		for i := range 6 {
			ids = append(ids, b.accept(to(fmt.Sprintf("https://suspect-%d.example/", i))).ID)
		}
		for crash := range 2 {
			b.stampAs(fmt.Sprint("dead-", crash), ids...)
			time.Sleep(time.Minute) // the claims run out
		}
		var suspects gauge
		b = b.restart(answering("suspect", suspects.around(takes(3*time.Second))))
		time.Sleep(time.Second)
		accepted := time.Now()
		b.await(b.accept(accept.Submission{}).ID, time.Minute)
		b.ends("succeeded", 5*time.Minute, ids...)
		for _, id := range ids {
			b.is("attempts, of which two crashed", len(b.attempts(id)), 3)
		}
		b.is("suspects that were attempted at once", suspects.peak(), 1)
		between(b, "a fresh callback waited", b.hits("shop")[0].at.Sub(accepted), 0, time.Second)
	})
}

// However long a secret takes to be read, no claim grows so old by it that somebody else sends the same.
func TestSlowSecretsSendNothingTwice(t *testing.T) {
	for _, reading := range []time.Duration{100 * time.Millisecond, 20 * time.Second} {
		t.Run(reading.String(), func(t *testing.T) {
			with(nil).run(t, func(b *fixture) {
				changes := make([]control.EndpointChange, 200)
				for i := range changes {
					changes[i] = control.EndpointChange{ExternalID: new(fmt.Sprint("m", i)),
						URL: new("https://shop.example/h")}
				}
				must(b.engine.PutEndpoints(b.Context(), project, changes, operator))
				b.set(slow(reading), "OwnedSecrets")
				for i := range changes {
					b.accept(accept.Submission{Endpoint: fmt.Sprint("m", i)})
				}
				time.Sleep(5 * time.Minute)
				b.set(nil, "OwnedSecrets")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				sent := make(map[string]int)
				for _, h := range b.hits("") {
					sent[h.id]++
					b.check(sent[h.id] == 1, "%s was sent %d times", h.id, sent[h.id])
				}
				b.is("callbacks that were sent", len(sent), len(changes))
			})
		})
	}
}
