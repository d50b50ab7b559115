package dispatch_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// asOne has the engine believe that others work on its index, and gives it a name.
func asOne(o *dispatch.Options) {
	o.Alone = false
	o.Name, o.Version, o.Roles, o.Workers = "one", "1.2.3", []string{"api", "worker"}, 7
}

// reported is what the one process says of itself.
func (b *fixture) reported() store.Dispatcher {
	b.t.Helper()
	synctest.Wait()
	list, err := b.db.Dispatchers(b.t.Context(), 0)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("listed are %+v, %v", list, err)
	}
	return list[0]
}

// A process says that it is there at once, every five seconds, and that it is about to end as soon as it is; then it is gone from the list.
func TestAProcessReportsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(12 * time.Second)
			return answer(200, ""), nil
		}, faultySQL(sql), asOne)
		began := time.Now().UnixMilli()
		first := b.reported()
		want := store.Dispatcher{
			Name: "one", Version: "1.2.3", Roles: "api,worker", Workers: 7,
			StartedAt: began, SeenAt: began, Host: first.Host,
		}
		if first != want {
			t.Fatalf("at the start: %+v, want %+v", first, want)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := sql.count("ReportDispatcher"); n != 13 {
			t.Errorf("%d reports in a minute", n)
		}
		id := b.accept(accept.Submission{}).ID
		time.Sleep(6 * time.Second)
		if last := b.reported(); last.InFlight != 1 || last.StartedAt != began || last.SeenAt != began+65_000 {
			t.Errorf("in the middle of an attempt: %+v", last)
		}
		b.engine.BeginDrain()
		if h := b.engine.Health(t.Context()); h.Ready || h.Why != "draining" {
			t.Errorf("health: %+v", h)
		}
		late := b.accept(accept.Submission{}).ID
		if last := b.reported(); !last.Draining || last.SeenAt != began+66_000 {
			t.Errorf("at the drain: %+v", last)
		}
		// Whoever drains is there until its last attempt has ended.
		stopped := make(chan struct{})
		go func() { b.stopRun(); close(stopped) }()
		time.Sleep(5 * time.Second)
		if last := b.reported(); !last.Draining || last.SeenAt < began+70_000 {
			t.Errorf("five seconds into the drain: %+v", last)
		}
		<-stopped
		if list, err := b.db.Dispatchers(t.Context(), 0); err != nil || len(list) != 0 {
			t.Errorf("after the end: %+v, %v", list, err)
		}
		if c := b.get(id); c.State != store.Succeeded {
			t.Errorf("its attempt is %s", c.State)
		}
		if c := b.get(late); c.State != store.Scheduled || c.AttemptSeq != 0 {
			t.Errorf("what was accepted while draining is %s after %d attempts", c.State, c.AttemptSeq)
		}
	})
}

// The log is told once that a process cannot report itself, and once that it can again; its end does not wait for it.
func TestAProcessThatIsNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql), asOne, func(o *dispatch.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&text, nil))
		})
		time.Sleep(time.Minute + time.Second)
		for range 2 {
			sql.set(fail(errDown), "ReportDispatcher")
			time.Sleep(time.Minute)
			sql.set(nil, "ReportDispatcher")
			time.Sleep(30 * time.Second)
		}
		sql.set(hang, "WithdrawDispatcher")
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end took %s", took)
		}
		if said, back := strings.Count(text.String(), "cannot report itself"), strings.Count(text.String(), "seen again"); said != 2 || back != 2 {
			t.Errorf("two outages are complained of %d times and taken back %d times:\n%s", said, back, text.String())
		}
	})
}

// Whoever is alone leaves the disk in peace while nothing changes.
func TestAnIdleProcessThatIsAloneReportsSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(8 * time.Second)
			return answer(200, ""), nil
		}, faultySQL(sql), asOne, func(o *dispatch.Options) { o.Alone = true })
		time.Sleep(10*time.Minute + time.Second)
		if n := sql.count("ReportDispatcher"); n != 11 {
			t.Errorf("%d reports in ten minutes", n)
		}
		list, err := b.engine.Dispatchers(t.Context())
		if err != nil || len(list) != 1 || list[0].SeenAt != time.Now().UnixMilli() {
			t.Errorf("it is listed as %+v, %v", list, err)
		}
		b.await(b.accept(accept.Submission{}).ID, time.Minute)
		time.Sleep(10 * time.Second)
		if n := sql.count("ReportDispatcher"); n != 13 {
			t.Errorf("%d reports of an attempt, want that it began and that it ended", n-11)
		}
	})
}
