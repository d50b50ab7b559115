package dispatch_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// visitors remembers what processes say of themselves. While it is down nobody is heard; while it hangs nobody gets away.
type visitors struct {
	dispatch.Store
	down     atomic.Bool
	hangs    atomic.Bool
	mu       sync.Mutex
	reported []store.Dispatcher
}

func (v *visitors) ReportDispatcher(ctx context.Context, d store.Dispatcher) error {
	if v.down.Load() {
		return fmt.Errorf("report: %w", store.ErrUnavailable)
	}
	v.mu.Lock()
	v.reported = append(v.reported, d)
	v.mu.Unlock()
	return v.Store.ReportDispatcher(ctx, d)
}

func (v *visitors) WithdrawDispatcher(ctx context.Context, name string) error {
	if v.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return v.Store.WithdrawDispatcher(ctx, name)
}

func (v *visitors) seen() []store.Dispatcher {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.reported)
}

// shared has the engine believe that others work on its index.
func (v *visitors) shared(o *dispatch.Options) {
	v.Store, o.Store, o.Alone = o.Store, v, false
	o.Name, o.Version, o.Roles, o.Workers = "one", "1.2.3", []string{"api", "worker"}, 7
}

func (b *bench) dispatchers() []store.Dispatcher {
	b.t.Helper()
	list, err := b.engine.Dispatchers(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// A process says that it is there at once, every five seconds, and that it is about to end as soon as it is; then it is gone from the list.
func TestAProcessReportsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := new(visitors)
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(12 * time.Second)
			return answer(200, ""), nil
		}, v.shared)
		began := time.Now().UnixMilli()
		first := v.seen()
		want := store.Dispatcher{Name: "one", Version: "1.2.3", Roles: "api,worker", Workers: 7, StartedAt: began, SeenAt: began}
		if len(first) == 1 {
			want.Host = first[0].Host
		}
		if len(first) != 1 || first[0] != want {
			t.Fatalf("at the start: %+v, want %+v", first, want)
		}
		time.Sleep(time.Minute)
		if n := len(v.seen()); n != 13 {
			t.Errorf("%d reports in a minute", n)
		}
		id := b.accept(dispatch.Submission{}).ID
		time.Sleep(6 * time.Second)
		if last := v.seen()[13]; last.InFlight != 1 || last.StartedAt != began || last.SeenAt != began+65_000 {
			t.Errorf("in the middle of an attempt: %+v", last)
		}
		b.engine.BeginDrain()
		all := v.seen()
		if last := all[len(all)-1]; !last.Draining || last.SeenAt != began+66_000 {
			t.Errorf("at the drain: %+v", last)
		}
		// Whoever drains is there until its last attempt has ended.
		stopped := make(chan struct{})
		go func() { b.stopRun(); close(stopped) }()
		time.Sleep(5 * time.Second)
		if list, err := b.db.Dispatchers(t.Context(), began); err != nil || len(list) != 1 || !list[0].Draining || list[0].SeenAt < began+70_000 {
			t.Errorf("five seconds into the drain: %+v, %v", list, err)
		}
		<-stopped
		if list, err := b.db.Dispatchers(t.Context(), 0); err != nil || len(list) != 0 {
			t.Errorf("after the end: %+v, %v", list, err)
		}
		if c := b.get(id); c.State != store.Succeeded {
			t.Errorf("its attempt is %s", c.State)
		}
	})
}

// The log is told once that a process cannot report itself, and once that it can again; its end does not wait for it.
func TestAProcessThatIsNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		v := new(visitors)
		b := newBench(t, always(200, ""), v.shared, func(o *dispatch.Options) { o.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
		time.Sleep(time.Minute + time.Second)
		for range 2 {
			v.down.Store(true)
			time.Sleep(time.Minute)
			v.down.Store(false)
			time.Sleep(30 * time.Second)
		}
		v.hangs.Store(true)
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
		v := new(visitors)
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(8 * time.Second)
			return answer(200, ""), nil
		}, v.shared, func(o *dispatch.Options) { o.Alone = true })
		time.Sleep(10*time.Minute + time.Second)
		if n := len(v.seen()); n != 11 {
			t.Errorf("%d reports in ten minutes", n)
		}
		if list := b.dispatchers(); len(list) != 1 || list[0].SeenAt != time.Now().UnixMilli() {
			t.Errorf("it is listed as %+v", list)
		}
		b.await(b.accept(dispatch.Submission{}).ID, time.Minute)
		time.Sleep(10 * time.Second)
		if n := len(v.seen()); n != 13 {
			t.Errorf("%d reports of an attempt, want that it began and that it ended", n-11)
		}
	})
}
