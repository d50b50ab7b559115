package alert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// EvaluateSpec is the cron spec of EvaluateAlerts.
	EvaluateSpec = "@every 10s"
	// evaluateTime bounds one run of EvaluateAlerts. projectsPage is how many projects one query lists.
	evaluateTime = 4 * time.Second
	projectsPage = 100
)

// EvaluateAlerts evaluates the enabled alerts of all projects, one project after the other. When evaluateTime
// is over, the next call continues with the next project.
func (as *Alerts) EvaluateAlerts(ctx context.Context) error {
	deadline := time.Now().Add(evaluateTime)
	now := as.clock.Now()
	sinks, err := as.sinkLanes(ctx)
	if err != nil {
		return err
	}
	round := &round{as: as, now: now, sinks: sinks}
	var errs []error
	for more := true; more; {
		projects, err := as.o.Store.AlertProjects(ctx, as.nextProject, projectsPage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, project := range projects {
			as.nextProject = project
			// An error of one project must not delay the others.
			if err := as.evaluateProject(ctx, round, project); err != nil {
				errs = append(errs, fmt.Errorf("evaluate the alerts of project %s: %w", project, err))
			}
			if time.Now().After(deadline) {
				return errors.Join(errs...)
			}
		}
		more = len(projects) == projectsPage
	}
	as.nextProject = ""
	as.exported.Set(as.firing)
	as.firing = make(map[string]float64)
	as.totals.forget(now)
	return errors.Join(errs...)
}

// maxSinks bounds the sinks of all projects.
const maxSinks = 10_000

// sinkLanes returns the lanes of messages. No alert looks at them: it would fire for its own messages.
func (as *Alerts) sinkLanes(ctx context.Context) (map[int64]bool, error) {
	lanes, err := as.o.Store.SinkLanes(ctx, maxSinks)
	if err != nil {
		return nil, err
	}
	sinks := make(map[int64]bool, len(lanes))
	for _, lane := range lanes {
		sinks[lane] = true
	}
	return sinks, nil
}

// evaluateProject evaluates the alerts of one project.
func (as *Alerts) evaluateProject(ctx context.Context, r *round, project string) error {
	enabled := store.AlertFilter{Enabled: new(true), Limit: store.MaxAlerts}
	alerts, err := as.o.Store.Alerts(ctx, project, enabled)
	if err != nil {
		return err
	}
	live, err := as.o.Store.LiveFirings(ctx, project, store.MaxAlerts*maxInstances)
	if err != nil {
		return err
	}
	byAlert := make(map[string][]store.AlertFiring)
	for _, f := range live {
		byAlert[f.AlertID] = append(byAlert[f.AlertID], f)
	}
	view := &projectView{round: r, project: project}
	var errs []error
	for i := range alerts {
		a := &alerts[i]
		found, err := view.find(ctx, a)
		if err != nil { // what is not known neither fires nor resolves
			errs = append(errs, fmt.Errorf("alert %s%s: %w", store.AlertPrefix, a.ID, err))
			continue
		}
		if err := as.step(ctx, a, byAlert[a.ID], found, r.now); err != nil {
			errs = append(errs, fmt.Errorf("alert %s%s: %w", store.AlertPrefix, a.ID, err))
		}
	}
	return errors.Join(errs...)
}

// step writes what an evaluation of an alert found, with a message if there is something to report.
func (as *Alerts) step(
	ctx context.Context, a *store.Alert, live []store.AlertFiring, found []finding, now int64,
) error {
	step := advanceAlert(a, live, found, now, func() string { return as.ids.New(time.UnixMilli(now)) })
	if step.firing > 0 {
		as.firing[string(a.When.Kind)]++
	}
	s := store.AlertStep{
		Alert: *a, Now: now, NextDigest: a.NextDigest, LastError: a.LastError, Drop: step.drop,
	}
	reports := step.reports(a, now)
	digest := a.NextDigest != 0 && a.NextDigest+countedAfter.Milliseconds() <= now
	var err error
	switch {
	case digest:
		s.NextDigest = nextDigest(a, now)
		s.Summary = true
		if !a.Silenced(now) {
			s.Draft, err = as.digest(ctx, a, now)
		}
	case reports:
		s.Draft, err = as.draft(ctx, a, changeMessage(a, &step, as.link(a, step.fired), now))
		if err == nil {
			step.markReported(s.Draft.Callback.ID)
		}
	}
	if digest || reports {
		s.LastError = ""
	}
	if err != nil { // the next evaluation tries again
		s.LastError, s.NextDigest = clip(err.Error()), a.NextDigest
	}
	s.Put = slices.SortedFunc(maps.Values(step.put), byID)
	if !step.changed() && s.Draft == nil && s.LastError == a.LastError && s.NextDigest == a.NextDigest {
		return err
	}
	return errors.Join(err, as.commit(ctx, &s))
}

func byID(x, y store.AlertFiring) int {
	switch {
	case x.ID < y.ID:
		return -1
	case x.ID > y.ID:
		return 1
	}
	return 0
}

// commit stores a step, and adds its message to the index.
func (as *Alerts) commit(ctx context.Context, s *store.AlertStep) error {
	if s.Draft == nil {
		_, err := as.o.Store.StepAlert(ctx, *s)
		return err
	}
	creation := as.o.Accept.Trace(ctx, s.Draft)
	done, err := as.o.Store.StepAlert(ctx, *s)
	if err != nil || !done.Won {
		return err
	}
	creation.End([]store.Accepted{done.Accepted})
	as.o.Accept.Enqueue(ctx, &done.Accepted)
	return nil
}

// maxError bounds the stored error of an alert.
const maxError = 500

func clip(text string) string {
	if runes := []rune(text); len(runes) > maxError {
		return string(runes[:maxError])
	}
	return text
}
