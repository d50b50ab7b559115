package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A poll that is resolved while it waits is taken out of the index, and the result of one in a project that is paused waits with it.
func TestAResolvedPollLeavesTheIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("PROCESSING"))
		// What is accepted before the index is built is told to it twice, the second time a second later, also if it has ended by then:
		// that is found out when it is claimed.
		time.Sleep(10 * time.Second)
		p := b.poll(paidPoll("o-1", time.Hour))
		time.Sleep(time.Second)
		b.must(b.engine.PauseProject(t.Context(), store.DefaultProject, time.Now().Add(time.Hour).UnixMilli(), store.Actor{Name: "test"}))
		b.must(b.engine.ResolvePoll(t.Context(), store.DefaultProject, p.ID, control.ResolveRequest{}, store.Actor{Name: "test"}))
		synctest.Wait()
		if stats, err := b.index.Stats(t.Context(), 0); err != nil || stats.Delayed+stats.Ready+stats.Leased != 1 {
			t.Errorf("the index holds %+v, %v; want the result alone", stats, err)
		}
		time.Sleep(30 * time.Minute)
		if n := len(b.results(p.ID)); n != 0 {
			t.Errorf("%d results were sent while the project was paused", n)
		}
		time.Sleep(time.Hour)
		b.result(p.ID)
	})
}

// Whoever asks to be told of polls that nobody knows the end of hears of all of them.
func TestEveryDeadPollIsUnresolved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("PROCESSING"))
		b.must(b.engine.CreateEndpoint(t.Context(), store.DefaultProject, control.EndpointChange{
			URL: new("https://ops.example/"), Topics: &[]string{report.TopicUnresolved},
		}, store.Actor{Name: "test"}))
		time.Sleep(10 * time.Second)
		s := paidPoll("o-1", time.Hour)
		s.ExpiresIn = new(time.Minute)
		p := b.poll(s)
		if c := b.await(p.ID, 2*time.Hour); c.Reason != store.Expired {
			t.Fatalf("ended %s", c.Reason)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		heard := 0
		for _, h := range b.receiver.seen() {
			if strings.HasPrefix(h.url, "https://ops.example/") && strings.Contains(h.body, p.ID) {
				heard++
			}
		}
		if heard != 1 {
			t.Errorf("it was told %d times", heard)
		}
	})
}
