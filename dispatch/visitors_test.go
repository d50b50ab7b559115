package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// visitors remembers what processes say of themselves. While it is down a call fails; while it hangs a call does not return.
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
