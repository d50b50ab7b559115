package ui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxOffset is the clock skew of a process, relative to the index, from which the page shows a warning.
	maxOffset = time.Second
	// maxHeadDelay is how long the head of the delay set may be overdue. The index promotes due callbacks
	// within a second.
	maxHeadDelay = 5 * time.Second
	// indexTimeout bounds the call for the index's statistics. The rest of the page does not need them.
	indexTimeout = 3 * time.Second
)

// systemPage shows the processes, the database and the index. Only the admin key of the settings sees them.
// Other keys see the acts on their project.
type systemPage struct {
	base
	// Why is the reason why SQL cannot commit, or empty.
	Why string
	installation
	// HeadLate is true if the index does not promote due callbacks.
	HeadLate bool
}

// An installation is the processes and the index. All projects share them.
type installation struct {
	Processes []*processRow
	// Alive, InFlight and Workers are sums over the live processes. Idle is true if none of them sends.
	Alive, InFlight, Workers int
	Idle                     bool
	Index                    index.Status
	// Stats is nil if the index does not respond.
	Stats *schedule.Stats
}

// A processRow is one process. Gone is true if its heartbeat is older than control.DispatcherSilence. Off is
// true if its clock skew exceeds maxOffset.
type processRow struct {
	store.Dispatcher
	Gone, Off bool
	Offset    string
}

func newProcessRow(l *language, d *store.Dispatcher, now int64) *processRow {
	off := time.Duration(d.ClockOffset) * time.Millisecond
	return &processRow{
		Dispatcher: *d, Gone: now-d.SeenAt > control.DispatcherSilence.Milliseconds(),
		Offset: l.duration(off), Off: off.Abs() > maxOffset,
	}
}

// Counters returns the names of the index's counters, in the order in which a callback passes them.
func (*systemPage) Counters() []string {
	return []string{"claimed", "acked", "rescheduled", "diverted", "buried", "reaped", "stale"}
}

// system is GET /ui/system.
func (u *UI) system(r *request) (*response, error) {
	p := &systemPage{base: u.base(r, "system", "system.title")}
	if !r.caller.Root() {
		return show("system", p)
	}
	if health := u.Engine.Health(r.ctx); !health.Ready {
		p.Why = health.Why
	}
	var err error
	p.installation, err = u.installation(r)
	if err != nil {
		return nil, err
	}
	p.HeadLate = p.Stats != nil && p.Stats.HeadDue != 0 && p.Stats.HeadDue < r.now-maxHeadDelay.Milliseconds()
	return show("system", p)
}

// installation reads the processes and the state of the index. If the index fails to report its statistics,
// Stats stays nil and the rest is returned.
func (u *UI) installation(r *request) (all installation, err error) {
	processes, err := u.Engine.Dispatchers(r.ctx)
	if err != nil {
		return all, err
	}
	all.Idle = true
	for _, d := range processes {
		row := newProcessRow(r.lang, &d, r.now)
		if !row.Gone {
			all.Alive, all.InFlight, all.Workers = all.Alive+1, all.InFlight+d.InFlight, all.Workers+d.Workers
			all.Idle = all.Idle && (d.Workers == 0 || d.SendingOff || d.Draining)
		}
		all.Processes = append(all.Processes, row)
	}
	all.Index, err = u.Engine.IndexStatus(r.ctx)
	if err != nil || all.Index.Down {
		return all, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, indexTimeout)
	defer cancel()
	stats, err := u.Engine.Stats(ctx)
	switch {
	case err == nil:
		all.Stats = &stats
	case r.ctx.Err() != nil:
		return all, errors.Join(err, r.ctx.Err())
	default:
		u.Logger.Debug("index statistics not available", "error", err)
	}
	return all, nil
}

// Other reports whether the index has another generation than SQL.
func (p *systemPage) Other() bool { return !p.Index.Down && p.Index.Present != p.Index.Generation }

// Horizon returns how far ahead of their due time callbacks enter the index. Empty means that all are in it.
func (p *systemPage) Horizon() string {
	if p.Index.Horizon == 0 {
		return ""
	}
	return p.duration(p.Index.Horizon)
}

const (
	// verifyTimeout bounds a verification, which reads every open callback twice.
	verifyTimeout = time.Minute
	// rebuildTimeout bounds a rebuild. After it the rebuild is abandoned, and the next leader starts it
	// again.
	rebuildTimeout = 5 * time.Minute
)

const systemPath = Root + "/system"

// systemActs returns the routes of the acts on the whole project: pause and resume all sending.
func (u *UI) systemActs() []Route {
	pause, resume := pausing(func(
		ctx context.Context, project, _ string, until int64, by store.Actor,
	) (store.Project, error) {
		return u.Engine.PauseProject(ctx, project, until, by)
	})
	return actsOn(u, kind[store.Project]{
		path: "/system/", texts: "system.", section: "system", begin: (*form).beginProject,
		id:   func(r *request) (string, error) { return r.caller.Project, nil },
		find: func(r *request, id string) (store.Project, error) { return u.Store.Project(r.ctx, id) },
	}, []actOn[store.Project]{
		{name: "pause", ask: (*form).askPauseAll, danger: true, do: func(r *request, id string) error {
			if _, err := r.pauseEnd(); err == nil && r.value("reason") == "" {
				return invalid("reason", r.lang.text("system.pause.reason"))
			}
			return pause(r, id)
		}},
		{name: "resume", ask: (*form).askResumeAll, do: resume},
	})
}

// beginProject adds the facts of a project and of its current pause to a form.
func (f *form) beginProject(project store.Project) {
	f.addFacts("frame.project", project.ID)
	if project.PausedUntil <= f.now {
		return
	}
	until := fact{Name: f.T("system.paused.until"), Value: f.T("system.paused.forever")}
	if project.PausedUntil < store.Forever {
		until.Value, until.Data = f.Absolute(project.PausedUntil), true
	}
	f.Facts = append(f.Facts, until)
	if project.PauseReason != "" {
		f.addFacts("form.reason", project.PauseReason)
	}
}

func (f *form) askPauseAll(project store.Project) error {
	f.Effects = append(f.Effects, f.T("system.pause.accepts"), f.T("system.pause.inflight"))
	if project.PausedUntil > f.now {
		f.Effects = append(f.Effects, f.T("system.pause.again"))
	}
	reason := f.askReason()
	reason.Required, reason.Help = true, f.T("system.pause.reason.help")
	f.Fields = []field{
		reason, f.askMono("for", "system.pause.for", "30m"), f.askMoment("until", "system.pause.until"),
	}
	return nil
}

func (f *form) askResumeAll(project store.Project) error {
	f.Effects = append(f.Effects, f.T("system.resume.own"))
	if project.PausedUntil <= f.now {
		f.Effects = []string{f.T("system.resume.not")}
	}
	return nil
}

// driftPage shows the differences between SQL and the index.
type driftPage struct {
	base
	// TooLong is true if the verification has reached verifyTimeout.
	TooLong     bool
	Drift       index.Drift
	Differences []difference
}

// A difference is one kind of drift. Its texts are "system.drift.NAME" and "system.drift.NAME.*".
type difference struct {
	Name  string
	Count int
	IDs   []string
	// More counts the callbacks beyond IDs. Known is true if SQL has rows for them.
	More  int
	Known bool
}

// Clean reports whether nothing differs.
func (p *driftPage) Clean() bool { return p.Drift.Clean() }

// Other reports whether the index has another generation than SQL.
func (p *driftPage) Other() bool { return p.Drift.Generation != p.Drift.IndexGeneration }

func (u *UI) askVerify(r *request) (*form, error) {
	return u.form(r, "system", "system.verify", systemPath, ".time"), nil
}

// verify is POST /ui/system/verify. It changes nothing, but it is too expensive for a link that a crawler or
// a prefetch may follow.
func (u *UI) verify(r *request) (*response, error) {
	ctx, cancel := context.WithTimeout(r.ctx, verifyTimeout)
	defer cancel()
	p := &driftPage{base: u.base(r, "system", "system.verify.title")}
	var err error
	p.Drift, err = u.Engine.Verify(ctx)
	switch d := &p.Drift; {
	case err != nil && r.timedOut(ctx):
		p.TooLong = true
	case err != nil:
		return nil, u.indexError(r, err)
	default:
		for _, kind := range []difference{
			{Name: "unknown", Count: d.Unknown, IDs: d.UnknownIDs},
			{Name: "missing", Count: d.Missing, IDs: d.MissingIDs, Known: true},
			{Name: "late", Count: d.Late, IDs: d.LateIDs, Known: true},
			{Name: "ended", Count: d.Ended, IDs: d.EndedIDs, Known: true},
		} {
			if kind.Count > 0 {
				kind.More = max(kind.Count-len(kind.IDs), 0)
				p.Differences = append(p.Differences, kind)
			}
		}
	}
	return show("drift", p)
}

// errIndexDown reports that the index does not respond.
var errIndexDown = errors.New("the index does not respond")

// indexError adds errIndexDown to an error of an act on the index if the index is down.
func (u *UI) indexError(r *request, err error) error {
	if slices.Contains(u.Engine.Health(r.ctx).Degraded, "redis") {
		return errors.Join(errIndexDown, err)
	}
	return err
}

func (u *UI) askRebuild(r *request) (*form, error) {
	f := u.form(r, "system", "system.rebuild", systemPath, ".first", ".time")
	f.Danger = true
	f.Fields = []field{f.askReason()}
	f.PreviewSubmit = f.T("system.rebuild.dry")
	return f, nil
}

// rebuild is POST /ui/system/rebuild. As a preview it only counts the callbacks that the index would get.
func (u *UI) rebuild(r *request) (*response, error) {
	ctx, cancel := context.WithTimeout(r.ctx, rebuildTimeout)
	defer cancel()
	dry := r.form.Has("preview")
	report, err := u.Engine.Rebuild(ctx, dry, r.by())
	if err != nil && r.timedOut(ctx) {
		u.flashFailed(r, r.lang.text("system.rebuild.toolong"))
		return redirect(systemPath)
	}
	if err != nil {
		return nil, u.indexError(r, err)
	}
	result := func(key string) string {
		return r.lang.text(key, "n", report.Open, "claimed", report.Claimed,
			"generation", report.Generation, "d", r.lang.duration(report.Took))
	}
	if dry {
		f, err := u.askRebuild(r)
		if err != nil {
			return nil, err
		}
		return preview(f, result("system.rebuild.would"))
	}
	return u.returnDone(r, systemPath, result("system.rebuild.done"))
}

// A Migration is one migration of the database's schema.
type Migration struct {
	Version int64
	Name    string
	// AppliedAt is zero if the migration is not applied.
	AppliedAt time.Time
}

// migrationsPage is the list of migrations. It has no stream, because each request opens a connection of its
// own.
type migrationsPage struct {
	base
	Rows []Migration
	// Open counts the migrations that are not applied.
	Open int
}

// migrations is GET /ui/system/migrations.
func (u *UI) migrations(r *request) (*response, error) {
	steps, err := u.Store.Migrations(r.ctx)
	if err != nil {
		return nil, err
	}
	p := &migrationsPage{base: u.base(r, "system", "system.migrations.title"), Rows: steps}
	for _, m := range steps {
		if m.AppliedAt.IsZero() {
			p.Open++
		}
	}
	return show("migrations", p)
}
