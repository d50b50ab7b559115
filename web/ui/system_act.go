package ui

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// verifyTime bounds a comparison, which reads every open callback twice.
	verifyTime = time.Minute
	// rebuildTime is how long a rebuild is waited for. One that is given up is completed by the process that keeps the index.
	rebuildTime = 5 * time.Minute
)

const systemPath = Root + "/system"

// systemForm begins the form of an act on the whole. The texts are those of "system.NAME.*".
func (u *UI) systemForm(r *request, name string, says ...string) *form {
	f := &form{base: u.base(r, "system", "system."+name+".title"), Back: r.back(systemPath), Submit: r.lang.text("system." + name + ".submit")}
	for _, key := range says {
		f.Says = append(f.Says, f.T("system."+name+"."+key))
	}
	return f
}

// pausedFacts name the project and say whether it is paused at this moment.
func (u *UI) pausedFacts(r *request, f *form) (paused bool, err error) {
	project, err := u.Projects.Project(r.ctx, r.who.project)
	if err != nil {
		return false, err
	}
	f.Facts = []fact{{Name: f.T("frame.project"), Value: project.ID, Data: true}}
	if paused = project.PausedUntil > r.now; !paused {
		return false, nil
	}
	until := fact{Name: f.T("system.paused.until"), Value: f.T("system.paused.forever")}
	if project.PausedUntil < store.Forever {
		until.Value, until.Data = f.Absolute(project.PausedUntil), true
	}
	if f.Facts = append(f.Facts, until); project.PauseReason != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("form.reason"), Value: project.PauseReason, Data: true})
	}
	return true, nil
}

func (u *UI) askPauseAll(r *request) (*form, error) {
	f := u.systemForm(r, "pause", "says", "accepts", "inflight")
	f.Danger = true
	paused, err := u.pausedFacts(r, f)
	if err != nil {
		return nil, err
	}
	if paused {
		f.Says = append(f.Says, f.T("system.pause.again"))
	}
	reason := f.reasonField()
	reason.Required, reason.Help = true, f.T("system.pause.reason.help")
	f.Fields = []field{
		reason,
		{Name: "for", Kind: lineField, Label: f.T("system.pause.for"), Help: f.T("system.pause.for.help"), Suggest: "30m", Mono: true},
		{Name: "until", Kind: "datetime-local", Label: f.T("system.pause.until"), Help: f.T("form.zone", "zone", r.zone.name)},
	}
	return f, nil
}

// pauseAll is the kill switch: nothing of the project is sent any more.
func (u *UI) pauseAll(r *request) (*answer, error) {
	until, err := r.pauseEnd()
	if err != nil {
		return nil, err
	}
	if r.value("reason") == "" {
		return nil, invalid("reason", r.lang.text("system.pause.reason"))
	}
	if _, err := u.System.PauseProject(r.ctx, r.who.project, until, r.by()); err != nil {
		return nil, err
	}
	return u.did(r, systemPath, r.lang.text("system.pause.done"))
}

func (u *UI) askResumeAll(r *request) (*form, error) {
	f := u.systemForm(r, "resume", "says", "own")
	paused, err := u.pausedFacts(r, f)
	if err != nil {
		return nil, err
	}
	if !paused {
		f.Says = []string{f.T("system.resume.not")}
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) resumeAll(r *request) (*answer, error) {
	if _, err := u.System.PauseProject(r.ctx, r.who.project, 0, r.by()); err != nil {
		return nil, err
	}
	return u.did(r, systemPath, r.lang.text("system.resume.done"))
}

// driftPage is what differs between the database and the index.
type driftPage struct {
	base
	// TooLong: the comparison was not ended.
	TooLong     bool
	Drift       dispatch.Drift
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
	return u.systemForm(r, "verify", "says", "time"), nil
}

// verify is POST /ui/system/verify: it changes nothing, but costs too much to be had by a link.
func (u *UI) verify(r *request) (*answer, error) {
	ctx, cancel := context.WithTimeout(r.ctx, verifyTime)
	defer cancel()
	p := &driftPage{base: u.base(r, "system", "system.verify.title")}
	var err error
	p.Drift, err = u.Index.Verify(ctx)
	switch d := &p.Drift; {
	case err != nil && r.tookTooLong(ctx):
		p.TooLong = true
	case err != nil:
		return nil, u.indexTrouble(r, err)
	default:
		for _, kind := range []difference{
			{Name: "unknown", Count: d.Unknown, IDs: d.UnknownIDs}, {Name: "missing", Count: d.Missing, IDs: d.MissingIDs, Known: true},
			{Name: "late", Count: d.Late, IDs: d.LateIDs, Known: true}, {Name: "ended", Count: d.Ended, IDs: d.EndedIDs, Known: true},
		} {
			if kind.Count > 0 {
				kind.More = max(kind.Count-len(kind.IDs), 0)
				p.Differences = append(p.Differences, kind)
			}
		}
	}
	return show("drift", p)
}

// errIndexAway: the index does not answer.
var errIndexAway = errors.New("the index does not answer")

// indexTrouble says of an error of something that needs the index whether it is the index's.
func (u *UI) indexTrouble(r *request, err error) error {
	if slices.Contains(u.Clock.Health(r.ctx).Degraded, "redis") {
		return errors.Join(errIndexAway, err)
	}
	return err
}

func (u *UI) askRebuild(r *request) (*form, error) {
	f := u.systemForm(r, "rebuild", "says", "first", "time")
	f.Danger = true
	f.Fields = []field{f.reasonField()}
	f.PreviewSubmit = f.T("system.rebuild.dry")
	return f, nil
}

func (u *UI) rebuild(r *request) (*answer, error) {
	ctx, cancel := context.WithTimeout(r.ctx, rebuildTime)
	defer cancel()
	dry := r.form.Has("preview")
	report, err := u.Index.Rebuild(ctx, dry, r.by())
	if err != nil && r.tookTooLong(ctx) {
		u.warn(r, r.lang.text("system.rebuild.toolong"))
		return redirect(systemPath)
	}
	if err != nil {
		return nil, u.indexTrouble(r, err)
	}
	says := func(key string) string {
		return r.lang.text(key, "n", report.Open, "claimed", report.Claimed, "generation", report.Generation, "d", shortDuration(report.Took))
	}
	if dry {
		f, err := u.askRebuild(r)
		if err != nil {
			return nil, err
		}
		return preview(f, says("system.rebuild.would"))
	}
	return u.did(r, systemPath, says("system.rebuild.done"))
}
