package ui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxOffset is how far a process's clock may be from the index's before the page points at it.
	maxOffset = time.Second
	// maxHeadDelay is how long the first of the delay set may be overdue: what is due is moved within a
	// second.
	maxHeadDelay = 5 * time.Second
	// indexTimeout bounds what the page asks of the index, which may be away: the rest of the page must be
	// there then, too.
	indexTimeout = 3 * time.Second
)

// systemPage is how the program is: its processes, its database and its index. Only the settings' admin key
// is shown those; the others are shown what they may do to their project.
type systemPage struct {
	base
	// Why says why nothing can be committed; empty: it can.
	Why string
	installation
	// HeadLate: what is due is not moved.
	HeadLate bool
}

// An installation is the processes and the index, which are those of all projects.
type installation struct {
	Processes []*processRow
	// Alive, InFlight and Workers are of all processes that run. Idle: none of them attempts anything.
	Alive, InFlight, Workers int
	Idle                     bool
	Index                    index.Status
	// Stats is nil where the index does not answer.
	Stats *schedule.Stats
}

// A processRow is one process. Gone: it has died, or cannot reach the database. Off: its clock is.
type processRow struct {
	store.Dispatcher
	Gone, Off bool
	Offset    string
}

func newProcessRow(d *store.Dispatcher, now int64) *processRow {
	off := time.Duration(d.ClockOffset) * time.Millisecond
	return &processRow{
		Dispatcher: *d, Gone: now-d.SeenAt > control.DispatcherSilence.Milliseconds(),
		Offset: shortDuration(off), Off: off.Abs() > maxOffset,
	}
}

// Does is the roles that it has, so written that a line can end between two.
func (p *processRow) Does() string { return strings.ReplaceAll(p.Roles, ",", ", ") }

// Counters are those of the index, in the order of a callback's way through it.
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

// installation says how the program is. An index that does not say its sizes is no reason to show nothing.
func (u *UI) installation(r *request) (all installation, err error) {
	processes, err := u.Engine.Dispatchers(r.ctx)
	if err != nil {
		return all, err
	}
	all.Idle = true
	for _, d := range processes {
		row := newProcessRow(&d, r.now)
		if !row.Gone {
			all.Alive, all.InFlight, all.Workers = all.Alive+1, all.InFlight+d.InFlight, all.Workers+d.Workers
			all.Idle = all.Idle && (d.Workers == 0 || d.Held || d.Draining)
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
		u.Logger.Debug("index does not say its sizes", "error", err)
	}
	return all, nil
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

const (
	// verifyTimeout bounds a comparison, which reads every open callback twice.
	verifyTimeout = time.Minute
	// rebuildTimeout is how long a rebuild is waited for. One that is given up is completed by the process
	// that keeps the index.
	rebuildTimeout = 5 * time.Minute
)

const systemPath = Root + "/system"

// systemActs are acts on the whole project: the kill switch, after which nothing of it is sent any more.
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

// beginProject names the project and says whether it is paused at this moment.
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

// driftPage is what differs between the database and the index.
type driftPage struct {
	base
	// TooLong: the comparison was not ended.
	TooLong     bool
	Drift       index.Drift
	Differences []difference
}

// A difference is one kind of drift. Its texts are those of "system.drift.NAME" and what is below it.
type difference struct {
	Name  string
	Count int
	IDs   []string
	// More is how many there are beyond the ids. Known: the database has rows of them.
	More  int
	Known bool
}

// Clean says whether nothing differs.
func (p *driftPage) Clean() bool { return p.Drift.Clean() }

// Other says whether the index has another generation than it should.
func (p *driftPage) Other() bool { return p.Drift.Generation != p.Drift.IndexGeneration }

func (u *UI) askVerify(r *request) (*form, error) {
	return u.form(r, "system", "system.verify", systemPath, ".time"), nil
}

// verify is POST /ui/system/verify: it changes nothing, but costs too much to be had by a link.
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

// errIndexDown: the index does not answer.
var errIndexDown = errors.New("the index does not answer")

// indexError says of an error of something that needs the index whether it is the index's.
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
	says := func(key string) string {
		return r.lang.text(key, "n", report.Open, "claimed", report.Claimed, "generation", report.Generation,
			"d", shortDuration(report.Took))
	}
	if dry {
		f, err := u.askRebuild(r)
		if err != nil {
			return nil, err
		}
		return preview(f, says("system.rebuild.would"))
	}
	return u.returnDone(r, systemPath, says("system.rebuild.done"))
}

// A Migration is one step of the database's schema.
type Migration struct {
	Version int64
	Name    string
	// AppliedAt is zero for one that is not applied.
	AppliedAt time.Time
}

// migrationsPage is the steps of the schema. It is not kept up to date: each look opens a connection of its
// own.
type migrationsPage struct {
	base
	Rows []Migration
	// Open is how many are not applied.
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
