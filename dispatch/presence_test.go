package dispatch_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// asOne has the engine believe that others work on its index, and gives it a name.
func asOne(o *options) {
	o.Alone = false
	o.Name, o.Version, o.Roles, o.Workers = "one", "1.2.3", []string{"api", "worker"}, 7
}

// reported is what the one process says of itself.
func (b *fixture) reported() store.Dispatcher {
	b.Helper()
	synctest.Wait()
	list := must(b.db.Dispatchers(b.Context(), 0))
	b.is("processes that are listed", len(list), 1)
	return list[0]
}

// A process says that it is there at once, every five seconds, and that it is about to end as soon as it is;
// then it is gone from the list.
func TestAProcessReportsItself(t *testing.T) {
	with(takes(12*time.Second), asOne).run(t, func(b *fixture) {
		began := soon(0)
		first := b.reported()
		b.is("at the start", first, store.Dispatcher{
			Name: "one", Version: "1.2.3", Roles: "api,worker", Workers: 7,
			StartedAt: began, SeenAt: began, Host: first.Host,
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.is("reports in a minute", b.count("ReportDispatcher"), 13)
		id := b.accept(accept.Submission{}).ID
		time.Sleep(6 * time.Second)
		last := b.reported()
		b.check(last.InFlight == 1 && last.StartedAt == began && last.SeenAt == began+65_000,
			"in the middle of an attempt: %+v", last)
		b.engine.BeginDrain()
		b.is("health", b.health(), "draining")
		late := b.accept(accept.Submission{}).ID
		last = b.reported()
		b.check(last.Draining && last.SeenAt == began+66_000, "at the drain: %+v", last)
		// A process that drains is there until its last attempt has ended.
		stopped := make(chan struct{})
		go func() { b.stopRun(); close(stopped) }()
		time.Sleep(5 * time.Second)
		last = b.reported()
		b.check(last.Draining && last.SeenAt >= began+70_000, "five seconds into the drain: %+v", last)
		<-stopped
		b.is("processes after the end", len(must(b.db.Dispatchers(b.Context(), 0))), 0)
		b.stands(b.get(id), "succeeded")
		b.stands(b.get(late), "scheduled")
		b.is("attempts of what was accepted while draining", b.get(late).AttemptSeq, 0)
	})
}

// The log is told once that a process cannot report itself, and once that it can again; its end does not wait
// for it.
func TestAProcessThatIsNotHeard(t *testing.T) {
	var text bytes.Buffer
	logged := func(o *options) { o.Logger = slog.New(slog.NewTextHandler(&text, nil)) }
	with(nil, asOne, logged).run(t, func(b *fixture) {
		time.Sleep(time.Minute + time.Second)
		for range 2 {
			b.set(fail(errDown), "ReportDispatcher")
			time.Sleep(time.Minute)
			b.set(nil, "ReportDispatcher")
			time.Sleep(30 * time.Second)
		}
		b.set(hang, "WithdrawDispatcher")
		began := time.Now()
		b.stop()
		between(b, "the end took", time.Since(began), 0, 2*time.Second)
		for _, line := range []string{"cannot report itself", "seen again"} {
			b.is("of two outages: "+line, strings.Count(text.String(), line), 2)
		}
	})
}

// A process whose index is its own leaves the disk in peace while nothing changes.
func TestAnIdleProcessThatIsAloneReportsSeldom(t *testing.T) {
	with(takes(8*time.Second), asOne, func(o *options) { o.Alone = true }).run(t, func(b *fixture) {
		time.Sleep(10*time.Minute + time.Second)
		b.is("reports in ten minutes", b.count("ReportDispatcher"), 11)
		list := must(b.engine.Dispatchers(b.Context()))
		b.check(len(list) == 1 && list[0].SeenAt == soon(0), "it is listed as %+v", list)
		b.await(b.accept(accept.Submission{}).ID, time.Minute)
		time.Sleep(10 * time.Second)
		b.is("reports of an attempt: that it began and that it ended", b.count("ReportDispatcher")-11, 2)
	})
}
