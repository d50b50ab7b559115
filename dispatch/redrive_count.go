package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errUncounted: there are more than can be counted in the time of one request.
var errUncounted = errors.New("more callbacks match than can be counted at once; narrow the filter, or begin without dry_run")

// CountRedrive judges a redrive and counts the callbacks that it would be done to now: at most q.Most, if that is not zero; more says that
// there are others. It reads no more rows than it takes to know that. Its error is a *store.InvalidError, or the store's.
func (e *Engine) CountRedrive(ctx context.Context, project string, q RedriveRequest) (matched int64, more bool, err error) {
	r, err := e.judgeRedrive(project, &q, store.Actor{}, e.clock.now())
	if err != nil {
		return 0, false, err
	}
	return e.countRedrive(ctx, &r, q.Most)
}

const (
	// dryRunTime bounds how long a redrive that is only tried counts, countPage how many callbacks are read at once for it.
	dryRunTime = 20 * time.Second
	countPage  = 500
)

// countRedrive counts what a redrive would be done to, up to most; zero: all of it.
func (e *Engine) countRedrive(ctx context.Context, r *store.Redrive, most int64) (matched int64, more bool, err error) {
	if most <= 0 {
		most = math.MaxInt64 - 1
	}
	started := time.Now()
	f := r.Filter
	f.Now = r.CreatedAt
	for {
		f.Limit = countPage
		if len(f.Labels) == 0 { // labels are compared after rows are read: the last ones that are wanted may be far apart
			f.Limit = int(min(countPage, most+1-matched))
		}
		page, err := e.o.Store.List(ctx, r.Project, f)
		if err != nil {
			return 0, false, fmt.Errorf("count what matches: %w", err)
		}
		matched += int64(len(page.Callbacks))
		switch {
		case matched > most:
			return most, true, nil
		case page.Next == nil:
			return matched, false, nil
		case time.Since(started) > dryRunTime:
			return 0, false, invalid("filter", errUncounted.Error())
		}
		f.After = page.Next
	}
}
