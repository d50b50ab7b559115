package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Thousands of business transactions, a third of them rolled back at random, while applications and relays
// are killed, and the servers of both sides once each: the callbacks are the committed rows, exactly.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, on := range both {
		for _, m := range bothModes {
			if m == inProcess && !testserver.Full() {
				continue
			}
			t.Run(on.name+"/"+string(m), func(t *testing.T) {
				t.Parallel()
				storm(t, on, m)
			})
		}
	}
}

// A storm has apps applications, each of which does perSecond transactions a second until all have done the
// number of transactions together.
const (
	stormApps      = 4
	stormPerSecond = 40
)

func storm(t *testing.T, on *database, m mode) {
	harness.Check(t, places.Acquire(t.Context(), 2))
	t.Cleanup(func() { places.Release(2) })
	began := time.Now()
	tr := newTrial(t, "storm, "+on.name+", "+string(m), on, m)
	tr.result = line{id: "storm", title: "applications, relays and servers killed", on: on.name, mode: m,
		runs: 1}
	t.Cleanup(func() { tr.enter(began) })
	pg := tr.ownPostgres()
	o := tr.newOutbox("pay", on, on.own(tr))
	tr.src = o
	s := &stormy{trial: tr, o: o, want: testserver.Sized(2_000, 10_000, 50_000)}
	s.rage(pg)
	tr.MarkFault()
	tr.healedIn(backoffLimit)
	committed := o.count(`SELECT count(*) FROM orders`)
	if share := float64(committed) / float64(s.done()); share < 0.5 || share > 0.8 {
		tr.Errorf("%d of %d transactions committed: not two of three", committed, s.done())
	}
	tr.Remark("%d business transactions, %d of them committed; %d applications and %d relays killed; both "+
		"servers killed once", s.done(), committed, s.appsKilled, s.relaysKilled)
}

// A stormy is a storm that goes on.
type stormy struct {
	*trial
	o    *outbox
	want int // transactions in all
	apps []*app

	begun, before            int // applications, and transactions of those that ended
	appsKilled, relaysKilled int
}

// rage runs the storm.
func (s *stormy) rage(pg server) {
	s.Helper()
	p := s.relay("")
	for range stormApps {
		s.begin()
	}
	killed := map[string]bool{}
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Minute)
	defer cancel()
	for s.done() < s.want {
		timer := time.NewTimer(time.Second + rand.N(2*time.Second)) // the period of the faults
		select {
		case <-timer.C:
		case <-ctx.Done():
			s.Fatal("the storm does not end")
		}
		s.killApp(rand.N(len(s.apps)))
		if rand.N(2) == 0 {
			s.kill(p)
			s.relaysKilled++
			p = s.relay("")
		}
		for share, server := range map[int]server{3: pg, 2: s.o.server} {
			name := fmt.Sprint(share)
			if s.done() > s.want/share && !killed[name] {
				killed[name] = true
				s.Check(server.Kill())
				server.Start(s)
			}
		}
	}
	for _, a := range s.apps {
		a.kill()
		s.before += int(a.done.Load())
	}
	s.apps = nil
	apps, relays := testserver.Sized(3, 15, 60), testserver.Sized(1, 5, 20)
	if len(killed) != 2 || s.appsKilled < apps || s.relaysKilled < relays {
		s.Errorf("%d servers, %d applications and %d relays killed: too few to show anything", len(killed),
			s.appsKilled, s.relaysKilled)
	}
}

// begin starts another application.
func (s *stormy) begin() {
	s.Helper()
	s.apps = append(s.apps, s.o.startApp(fmt.Sprint("app", s.begun), stormPerSecond))
	s.begun++
}

// killApp kills an application and starts another one.
func (s *stormy) killApp(i int) {
	s.Helper()
	a := s.apps[i]
	a.kill()
	s.before += int(a.done.Load())
	s.appsKilled++
	s.apps = append(s.apps[:i:i], s.apps[i+1:]...)
	s.begin()
}

// done returns the number of transactions so far.
func (s *stormy) done() int {
	n := s.before
	for _, a := range s.apps {
		n += int(a.done.Load())
	}
	return n
}
