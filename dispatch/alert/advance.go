package alert

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// clearFor is how long a condition must be met again before its firing ends.
	clearFor = time.Minute
	// messageEvery is the least time between two messages of an alert.
	messageEvery = time.Minute
	// repeatAfter is the time from the last message of an alert until firings are reported again whose
	// message is dead.
	repeatAfter = 30 * time.Minute
	// maxInstances bounds the firings of an alert. Further instances are not followed until others end.
	maxInstances = 200
)

// A finding is one instance on which the condition of an alert is broken, or nearly so.
type finding struct {
	instance, name string
	value          float64
	// near: the condition is met, but so closely that a firing does not end.
	near bool
}

// An advance is what one evaluation makes of an alert.
type advance struct {
	// put are the firings to write, by id, and drop the ids of those to delete.
	put  map[string]store.AlertFiring
	drop []string
	// fired and resolved are the firings that no message has reported. The message of lost ones is dead.
	fired, resolved, lost []store.AlertFiring
	// firing is the number of instances that fire now.
	firing int
}

// changed reports whether there is something to write.
func (s *advance) changed() bool { return len(s.put) > 0 || len(s.drop) > 0 }

// advanceAlert compares what an alert has found before (live) with what it finds now. newID makes ids.
func advanceAlert(
	a *store.Alert, live []store.AlertFiring, found []finding, now int64, newID func() string,
) advance {
	seen := make(map[string]*finding, len(found))
	for i := range found {
		seen[found[i].instance] = &found[i]
	}
	step := advance{put: make(map[string]store.AlertFiring)}
	followed := 0
	for i := range live {
		r, f := live[i], seen[live[i].Instance]
		delete(seen, r.Instance)
		if progress(&r, f, a, now) {
			step.drop = append(step.drop, r.ID)
			continue
		}
		followed++
		step.add(a, &r, now)
		if r != live[i] {
			step.put[r.ID] = r
		}
	}
	for _, instance := range slices.Sorted(maps.Keys(seen)) {
		f := seen[instance]
		if f.near || followed >= maxInstances {
			continue
		}
		followed++
		r := store.AlertFiring{
			ID: newID(), Project: a.Project, AlertID: a.ID, Instance: f.instance, Name: f.name,
			Value: f.value, PendingSince: now, Live: true,
		}
		progress(&r, f, a, now)
		step.add(a, &r, now)
		step.put[r.ID] = r
	}
	return step
}

// progress moves a firing on by what is found on its instance now; nil: the condition is met. gone: it was
// pending, and ended before it fired.
func progress(r *store.AlertFiring, f *finding, a *store.Alert, now int64) (gone bool) {
	broken := f != nil && !f.near
	switch {
	case r.FiredAt == 0 && !broken:
		return true
	case r.FiredAt == 0:
		if now-r.PendingSince >= a.When.For.Milliseconds() {
			r.FiredAt, r.Name, r.Value = now, f.name, f.value
		}
	case r.ResolvedAt != 0 && broken: // it fires again before a message reported its end
		r.ResolvedAt, r.ClearSince = 0, 0
	case r.ResolvedAt != 0:
	case f != nil:
		r.ClearSince = 0
	case r.ClearSince == 0:
		r.ClearSince = now
	case now-r.ClearSince >= clearFor.Milliseconds():
		r.ResolvedAt = now
	}
	return false
}

// add decides what a message reports about a firing. A silence has no messages, and what fires after
// it is reported again. The end of a firing that was never reported needs no message.
func (s *advance) add(a *store.Alert, r *store.AlertFiring, now int64) {
	ended := r.ResolvedAt != 0
	switch {
	case r.FiredAt == 0:
		return
	case a.Silenced(now):
		r.MessageID, r.Live = "", !ended
	case ended && r.MessageID != "":
		s.resolved = append(s.resolved, *r)
	case ended:
		r.Live = false
	case r.MessageID == "":
		s.fired = append(s.fired, *r)
	case r.Lost:
		s.lost = append(s.lost, *r)
	}
	if !ended {
		s.firing++
	}
}

// reports decides whether a message is due, and adds the lost firings to those that it reports.
func (s *advance) reports(a *store.Alert, now int64) bool {
	wait := messageEvery
	if len(s.fired)+len(s.resolved) == 0 {
		wait = repeatAfter
	}
	s.fired = append(s.fired, s.lost...)
	return len(s.fired)+len(s.resolved) > 0 && now-a.SentAt >= wait.Milliseconds()
}

// markReported marks what the message of this step reports.
func (s *advance) markReported(messageID string) {
	for _, r := range s.fired {
		r.MessageID, r.Lost = messageID, false
		s.put[r.ID] = r
	}
	for _, r := range s.resolved {
		r.Live = false
		s.put[r.ID] = r
	}
}
