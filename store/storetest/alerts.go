package storetest

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newAlert returns an alert that is not created yet.
func (f *fixture) newAlert(name string) store.Alert {
	return store.Alert{
		ID: f.id(), Project: project, Name: name,
		When: store.AlertWhen{Kind: store.AlertDeadRate, Above: 10},
		Sink: "k1:ciphertext", SinkMasked: `{"type":"webhook"}`, SinkID: "robot", Enabled: true,
		CreatedAt: f.now, UpdatedAt: f.now,
	}
}

func (f *fixture) alert(name string) store.Alert {
	return must(f.CreateAlert(f.ctx(), f.newAlert(name), actor))
}

func (f *fixture) getAlert(id string) store.Alert { return must(f.Alert(f.ctx(), project, id)) }

// firing returns a firing of an alert that is pending.
func (f *fixture) firing(a *store.Alert, instance string) store.AlertFiring {
	return store.AlertFiring{
		ID: f.id(), Project: a.Project, AlertID: a.ID, Instance: instance, Name: "of " + instance, Value: 2.5,
		PendingSince: f.now, Live: true,
	}
}

func (f *fixture) live() []store.AlertFiring { return must(f.LiveFirings(f.ctx(), project, 100)) }

// step makes a step of an alert as it is now.
func (f *fixture) step(s store.AlertStep) store.AlertStepResult {
	s.Alert, s.Now = f.getAlert(s.Alert.ID), f.now
	return must(f.StepAlert(f.ctx(), s))
}

// testAlertSteps follows a firing from its first breach to its end, with its messages.
func testAlertSteps(f *fixture) {
	a := f.alert("dead")
	one, two := f.firing(&a, "one"), f.firing(&a, "two")
	pending := []store.AlertFiring{one, two}
	got := f.step(store.AlertStep{Alert: a, Put: pending, NextDigest: 7, LastError: "e"})
	f.check(got.Won && got.Accepted.Callback.ID == "", "first step: %+v", got)
	same(f, "pending firings", []store.AlertFiring{one, two}, f.live())
	after := f.getAlert(a.ID)
	f.check(after.NextDigest == 7 && after.LastError == "e" && after.SentAt == 0 && after.Version == 2,
		"alert after the first step: %+v", after)

	// A step that was planned with the alert of before has no effect, its message included.
	late := f.draft()
	old := store.AlertStep{Alert: a, Now: f.now, Drop: []string{one.ID}, Draft: &late}
	got = must(f.StepAlert(f.ctx(), old))
	f.check(!got.Won, "a step of an older version won")
	f.fails(store.ErrNotFound, "the message of a step that lost",
		errOf(f.Get(f.ctx(), project, late.Callback.ID)))

	f.now += 1000
	message := f.draft()
	one.FiredAt, one.MessageID, one.Value = f.now, message.Callback.ID, 3
	firing := []store.AlertFiring{one}
	got = f.step(store.AlertStep{Alert: a, Put: firing, Drop: []string{two.ID}, Draft: &message})
	f.check(got.Won && got.Accepted.Callback.ID == message.Callback.ID, "step with a message: %+v", got)
	same(f, "firing", []store.AlertFiring{one}, f.live())
	after = f.getAlert(a.ID)
	f.check(after.SentAt == f.now && after.SentID == message.Callback.ID && after.LastError == "" &&
		after.SentState == store.Scheduled, "alert after its message: %+v", after)
	f.wantOpen(1)
	f.commit(f.died(f.claim(message.Callback.ID)))
	one.Lost = true
	same(f, "a firing whose message is dead", []store.AlertFiring{one}, f.live())
	after = f.getAlert(a.ID)
	same(f, "the state of the last message", store.Dead, after.SentState)

	// Another sink has not heard of what fires.
	a, _ = must2(f.ChangeAlert(f.ctx(), project, a.ID, func(a *store.Alert) error {
		a.SinkID = "another"
		return nil
	}, f.now, actor))
	one.MessageID, one.Lost = "", false
	same(f, "a firing for another sink", []store.AlertFiring{one}, f.live())

	f.now += 1000
	one.ResolvedAt, one.Live = f.now, false
	f.step(store.AlertStep{Alert: a, Put: []store.AlertFiring{one}})
	same(f, "live firings after the end", 0, len(f.live()))
	same(f, "history", []store.AlertFiring{one}, must(f.AlertFirings(f.ctx(), project, a.ID, 10)))
	same(f, "fired since", []store.AlertFiring{one}, must(f.FiringsSince(f.ctx(), project, one.FiredAt, 10)))
	same(f, "fired later", 0, len(must(f.FiringsSince(f.ctx(), project, one.FiredAt+1, 10))))
	f.fails(store.ErrNotFound, "firings of another project",
		errOf(f.AlertFirings(f.ctx(), "other", a.ID, 10)))

	// The instance may fire again, and a refused message changes nothing.
	again := f.firing(&a, "one")
	f.step(store.AlertStep{Alert: a, Put: []store.AlertFiring{again}})
	same(f, "fires again", []store.AlertFiring{again}, f.live())
}

// testAlertStepCrowd evaluates an alert in several processes at once. One of them sends the message.
func testAlertStepCrowd(f *fixture) {
	a := f.alert("crowd")
	const rounds = 5
	for round := range rounds {
		read := f.getAlert(a.ID)
		won := 0
		for _, ok := range crowd(f, 8, func(int) bool {
			d, firing := f.draft(), f.firing(&a, fmt.Sprint("round ", round))
			got := must(f.StepAlert(f.ctx(), store.AlertStep{
				Alert: read, Now: f.now, Put: []store.AlertFiring{firing}, Draft: &d,
			}))
			return got.Won
		}) {
			if ok {
				won++
			}
		}
		same(f, "steps that won", 1, won)
	}
	same(f, "firings", rounds, len(f.live()))
	f.wantOpen(rounds)
}

// testFiringsKept checks that the store keeps the last KeptFirings ended firings of an alert.
func testFiringsKept(f *fixture) {
	a, other := f.alert("many"), f.alert("other")
	kept := f.firing(&other, "kept")
	kept.Live = false
	f.step(store.AlertStep{Alert: other, Put: []store.AlertFiring{kept}})
	var last []string
	for range store.KeptFirings + 5 {
		r := f.firing(&a, "")
		r.FiredAt, r.ResolvedAt, r.Live = f.now, f.now, false
		last = append([]string{r.ID}, last...)
		f.step(store.AlertStep{Alert: a, Put: []store.AlertFiring{r}})
	}
	same(f, "kept firings", last[:store.KeptFirings], each(must(f.AlertFirings(f.ctx(), project, a.ID, 500)),
		func(r store.AlertFiring) string { return r.ID }))
	same(f, "firings of another alert", 1, len(must(f.AlertFirings(f.ctx(), project, other.ID, 500))))
}
