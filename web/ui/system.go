package ui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Index is what pages ask of the engine about the index and the processes.
type Index interface {
	// Stats are the sizes of all shards together.
	Stats(ctx context.Context) (schedule.Stats, error)
	IndexStatus(ctx context.Context) (dispatch.IndexStatus, error)
	// Verify names at most 100 ids of each difference.
	Verify(ctx context.Context) (dispatch.Drift, error)
	Rebuild(ctx context.Context, dryRun bool, by store.Actor) (dispatch.RebuildReport, error)
	// Dispatchers are the processes that have reported themselves lately.
	Dispatchers(ctx context.Context) ([]store.Dispatcher, error)
}

// System is what the system page asks of the engine beside that.
type System interface {
	// PauseProject holds all that the project sends until then; with 0 it is resumed.
	PauseProject(ctx context.Context, project string, until int64, by store.Actor) (store.Project, error)
	// Keys returns the project's, newest first, those that have ended too.
	Keys(ctx context.Context, project string) ([]store.Key, error)
	// CreateKey returns the key's text too, which nothing can show again.
	CreateKey(ctx context.Context, project string, r dispatch.KeyRequest, by store.Actor) (store.Key, string, error)
	RevokeKey(ctx context.Context, project, id string, by store.Actor) error
}

const (
	// maxOffset is how far a process's clock may be from the index's before the page points at it.
	maxOffset = time.Second
	// headPatience is how long the first of the delay set may be overdue: whoever moves what is due does so within a second.
	headPatience = 5 * time.Second
	// indexTime bounds what the page asks of the index, which may be away: the rest of the page must be there then, too.
	indexTime = 3 * time.Second
)

func (u *UI) systemRoutes() []Route {
	routes := []Route{
		page("/system", u.system),
		still("/system/keys", store.ScopeAdmin, u.keys),
	}
	routes = append(routes, u.acts(
		act{"/system/pause", store.ScopeOperate, u.askPauseAll, u.pauseAll},
		act{"/system/resume", store.ScopeOperate, u.askResumeAll, u.resumeAll},
		act{"/system/keys/new", store.ScopeAdmin, u.askCreateKey, u.createKey},
		act{"/system/keys/:id/revoke", store.ScopeAdmin, u.askRevokeKey, u.revokeKey},
	)...)
	whole := []Route{still("/system/migrations", store.ScopeRead, u.migrations)}
	verify := u.acts(act{"/system/verify", store.ScopeAdmin, u.askVerify, u.verify})
	rebuild := u.acts(act{"/system/rebuild", store.ScopeAdmin, u.askRebuild, u.rebuild})
	whole = slices.Concat(whole, lasting(verifyTime, verify...), lasting(rebuildTime, rebuild...))
	return append(routes, forRoot(whole...)...)
}

// systemPage is how the program is: its processes, its database and its index. Only the settings' admin key
// is shown those; the others are shown what they may do to their project.
type systemPage struct {
	base
	// Why says why nothing can be committed; empty: it can.
	Why       string
	Processes []*processRow
	// InFlight and Workers are of all processes that run. Idle: none of them attempts anything.
	InFlight, Workers int
	Idle              bool
	Index             dispatch.IndexStatus
	// Stats is nil where the index does not answer.
	Stats *schedule.Stats
	// HeadLate: what is due is not moved.
	HeadLate bool
	Counters []counter
}

// A counter is how often the index has done something since it was built.
type counter struct {
	Name string
	N    int64
}

// A processRow is one process. Gone: it has died, or cannot reach the database. Off: its clock is.
type processRow struct {
	store.Dispatcher
	Gone, Off bool
	Offset    string
}

// Does is the roles that it has, so written that a line can end between two.
func (p *processRow) Does() string { return strings.ReplaceAll(p.Roles, ",", ", ") }

// counterNames are the counters of the index, in the order of a callback's way through it.
func counterNames() []string {
	return []string{"claimed", "acked", "rescheduled", "diverted", "buried", "reaped", "stale"}
}

// system is GET /ui/system.
func (u *UI) system(r *request) (*answer, error) {
	p := &systemPage{base: u.base(r, "system", "system.title")}
	if r.who.root() {
		if err := u.fillSystem(r, p); err != nil {
			return nil, err
		}
	}
	return show("system", p)
}

// fillSystem says how the program is.
func (u *UI) fillSystem(r *request, p *systemPage) error {
	if health := u.Clock.Health(r.ctx); !health.Ready {
		p.Why = health.Why
	}
	processes, err := u.Index.Dispatchers(r.ctx)
	if err != nil {
		return err
	}
	p.Idle = true
	for _, d := range processes {
		row := &processRow{Dispatcher: d, Gone: d.SeenAt < r.now-dispatch.DispatcherSilence.Milliseconds()}
		off := time.Duration(d.ClockOffset) * time.Millisecond
		row.Offset, row.Off = shortDuration(off), off.Abs() > maxOffset
		if !row.Gone {
			p.InFlight, p.Workers = p.InFlight+d.InFlight, p.Workers+d.Workers
			p.Idle = p.Idle && (d.Workers == 0 || d.Held || d.Draining)
		}
		p.Processes = append(p.Processes, row)
	}
	if p.Index, err = u.Index.IndexStatus(r.ctx); err != nil {
		return err
	}
	return u.indexSizes(r, p)
}

// indexSizes asks the index for its sizes. One that does not answer is told of, and is no reason to show nothing.
func (u *UI) indexSizes(r *request, p *systemPage) error {
	if p.Index.Down {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, indexTime)
	defer cancel()
	stats, err := u.Index.Stats(ctx)
	if err != nil {
		if r.ctx.Err() != nil {
			return errors.Join(err, r.ctx.Err())
		}
		u.Logger.Debug("index does not say its sizes", "error", err)
		return nil
	}
	p.Stats = &stats
	p.HeadLate = stats.HeadDue != 0 && stats.HeadDue < r.now-headPatience.Milliseconds()
	for _, name := range counterNames() {
		p.Counters = append(p.Counters, counter{name, stats.Counters[name]})
	}
	return nil
}

// Other says whether the index has another generation than it should.
func (p *systemPage) Other() bool { return !p.Index.Down && p.Index.Present != p.Index.Generation }

// Horizon is how far ahead the index holds callbacks; empty: all.
func (p *systemPage) Horizon() string {
	if p.Index.Horizon == 0 {
		return ""
	}
	return shortDuration(p.Index.Horizon)
}
