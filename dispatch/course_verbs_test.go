package dispatch_test

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// verbs are the commands of a course that do something. testdata/courses/README.md describes them.
var verbs = map[string]func(arguments) string{
	"engine": silent(func(a arguments) {
		a.next.tweaks = append(a.next.tweaks, a.options()...)
		a.fixture = a.next.start(a.T)
	}),
	"restart": silent(func(a arguments) {
		a.fixture = a.fixture.restart(a.fixture.receiver.answer, a.options()...)
	}),
	"join": silent(func(a arguments) {
		a.others[a.words[0]] = a.fixture.join(a.words[0], a.options()...)
	}),
	"end": silent(func(a arguments) { a.stopRun() }),
	"stop": silent(func(a arguments) {
		began := time.Now()
		a.stop()
		if a.has("within") {
			a.within("the end took", time.Since(began).Seconds(), "0s.."+a.named["within"])
		}
	}),
	"ending": silent(func(a arguments) { go a.stopRun() }),
	"drain":  silent(func(a arguments) { a.engine.BeginDrain() }),
	"sleep":  silent(func(a arguments) { time.Sleep(must(time.ParseDuration(a.words[0]))) }),
	"minute": silent(func(a arguments) {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(next.Add(must(time.ParseDuration(a.words[0])))))
	}),
	"receives": silent(func(a arguments) {
		if a.fixture == nil {
			a.next.answer = a.receiver()
		} else {
			a.turn(a.receiver())
		}
	}),
	"works": silent(func(a arguments) { a.set(nil, a.words...) }),
	"fail": silent(func(a arguments) {
		for _, op := range a.words {
			err := errBroken
			if _, ok := reflect.TypeFor[dispatch.Store]().MethodByName(op); ok {
				err = errDown
			} else if a.named["as"] == "lost" {
				err = schedule.ErrLost
			}
			a.inject(fail(err), op)
		}
	}),
	"slow": silent(func(a arguments) {
		a.inject(slow(must(time.ParseDuration(a.words[0]))), a.words[1:]...)
	}),
	"hang": silent(func(a arguments) { a.inject(hang, a.words...) }),
	"lose": silent(func(a arguments) { a.inject(loseReply, a.words...) }),
	"rolled": silent(func(a arguments) {
		a.inject(rolled(must(strconv.ParseInt(a.words[0], 10, 64))), "Claim")
	}),
	"damage": silent(func(a arguments) { a.damage(a.rest) }),
	"wipe": silent(func(a arguments) {
		a.ok(a.index.Reset(a.Context(), 0, must(strconv.ParseInt(cmp.Or(a.rest, "0"), 10, 64))))
	}),
	"forget": silent(func(a arguments) {
		c := a.get(a.id(a.words[0]))
		must(a.index.Cancel(a.Context(), []schedule.Ref{{ID: c.ID, Lane: c.LaneID}}))
	}),

	"moved": silent(func(a arguments) {
		synctest.Wait()
		c := a.get(a.id(a.words[0]))
		must(a.index.Move(a.Context(), []schedule.Movement{{Ref: schedule.Ref{ID: c.ID, Lane: c.LaneID},
			Due: c.DueAt + must(time.ParseDuration(a.words[1])).Milliseconds()}}))
	}),
	"seen": silent(func(a arguments) {
		a.ok(a.db.ReportDispatcher(a.Context(),
			store.Dispatcher{Name: a.words[0], Workers: 8, StartedAt: soon(0), SeenAt: soon(0)}))
	}),
	// purged removes the rows of processes, as the purge does days later.
	"purged": silent(func(a arguments) {
		must(a.db.PurgeDispatchers(a.Context(), soon(72*time.Hour), 100))
	}),
	// stamped claims callbacks for a process that then dies.
	"stamped": silent(func(a arguments) {
		st := store.Stamp{Token: a.words[0], Now: a.engine.Now(), Margin: 15_000}
		for _, id := range a.known(a.words[1:]...) {
			st.Claims = append(st.Claims, store.StampClaim{ID: id})
		}
		stamped, _, err := a.db.Stamp(a.Context(), st)
		a.ok(err)
		a.is("stamped", len(stamped), len(st.Claims))
	}),

	"accept": arguments.accepts,
	"event":  arguments.events,
	"planned": func(a arguments) string {
		return fmt.Sprint(must(a.db.EventPlanned(a.Context(), project, "events", a.words[0])))
	},
	"poll": arguments.polls,
	"cancel": silent(func(a arguments) {
		for _, id := range a.known(a.words...) {
			a.fixture.cancel(id)
		}
	}),
	"retry": func(a arguments) string {
		_, err := a.engine.Retry(a.Context(), project, a.id(a.words[0]),
			control.RetryRequest{URL: a.named["url"], Ladder: store.Ladder(a.named["ladder"])}, operator)
		return a.refused(err)
	},
	"reschedule": silent(func(a arguments) {
		delay := must(time.ParseDuration(a.words[1]))
		must(a.engine.Reschedule(a.Context(), project, a.id(a.words[0]), nil, &delay, operator))
		synctest.Wait()
	}),
	"edit": func(a arguments) string {
		_, err := a.engine.Edit(a.Context(), project, a.id(a.words[0]), control.EditRequest{
			URL: a.text("url"), Headers: a.headers(), Choice: accept.Choice{PolicyName: a.named["policy"]},
		}, operator)
		return a.refused(err)
	},
	"resolve": func(a arguments) string {
		got, err := a.engine.ResolvePoll(a.Context(), project, a.id(a.words[0]),
			control.ResolveRequest{Data: []byte(a.named["data"])}, operator)
		return string(got.Result) + a.refused(err)
	},
	"pause": silent(arguments.pauses),
	"halt": func(a arguments) string {
		_, err := a.engine.StopSending(a.Context(), moment(a.words[0]),
			store.Actor{Name: "root", Reason: a.named["reason"]})
		return a.refused(err)
	},
	"redrive": arguments.redrives,
	"become": silent(func(a arguments) {
		for _, name := range a.names(a.words[1:]...) {
			r := a.thing(name).(store.Redrive)
			must(a.engine.SetRedrive(a.Context(), r.Project, r.ID, store.RedriveState(a.words[0]), operator))
		}
	}),
	"limit": silent(func(a arguments) { a.setLane(a.named["lane"], must(strconv.Atoi(a.words[0]))) }),
	"quota": func(a arguments) string {
		return a.refused(a.patchProject(openQuota("", must(strconv.ParseInt(a.words[0], 10, 64)))))
	},
	"project": silent(func(a arguments) {
		a.createProject(openQuota(a.words[0], int64(a.number("quota"))))
	}),
	"endpoints": silent(func(a arguments) {
		name, n, _ := strings.Cut(a.words[0], "*")
		changes := make([]control.EndpointChange, must(strconv.Atoi(n)))
		for i := range changes {
			changes[i] = control.EndpointChange{ExternalID: new(fmt.Sprint(name, i+1)),
				URL: new("https://shop.example/h")}
		}
		must(a.engine.PutEndpoints(a.Context(), project, changes, operator))
	}),
	"endpoint": func(a arguments) string {
		ch := a.endpointChange()
		if ch.URL == nil {
			ch.URL = new("https://shop.example/hooks")
		}
		r, err := a.engine.CreateEndpoint(a.Context(), project, ch, operator)
		if err == nil {
			a.call(a.words[0], r.Endpoint.ID, func(id string) any {
				return must(a.db.Endpoint(a.Context(), project, id))
			})
		}
		return a.refused(err)
	},
	"patch": func(a arguments) string {
		_, err := a.engine.PatchEndpoint(a.Context(), project, a.id(a.words[0]), a.endpointChange(), operator)
		return a.refused(err)
	},
	"delete": silent(func(a arguments) {
		must(a.engine.DeleteEndpoint(a.Context(), project, a.id(a.words[0]), operator))
	}),
	"failed": silent(func(a arguments) {
		since := a.engine.Now() - must(time.ParseDuration(a.words[1])).Milliseconds()
		failed := store.EndpointHealth{ID: a.id(a.words[0]), FailedAt: since, FailedFirst: since}
		a.ok(a.db.ReportHealth(a.Context(), []store.EndpointHealth{failed}, since))
	}),
	"schedule": func(a arguments) string {
		s, err := a.engine.CreateSchedule(a.Context(), project, a.scheduleChange(), operator)
		if err == nil {
			a.call(a.words[0], s.ID, func(id string) any {
				return must(a.db.Schedule(a.Context(), project, id))
			})
		}
		return a.refused(err)
	},
	"set": func(a arguments) string {
		_, err := a.engine.PatchSchedule(a.Context(), project, a.id(a.words[0]), a.scheduleChange(), operator)
		return a.refused(err)
	},
	"unschedule": silent(func(a arguments) {
		a.ok(a.engine.DeleteSchedule(a.Context(), project, a.id(a.words[0]), operator))
	}),
	"run": func(a arguments) string {
		c, err := a.engine.RunSchedule(a.Context(), project, a.id(a.words[0]), operator)
		if err == nil && len(a.words) > 1 {
			a.callback(a.words[1], c.ID)
		}
		return a.refused(err)
	},
	"rebuilding": silent(func(a arguments) {
		ended := make(chan error, 1)
		go func() {
			_, err := a.engine.Rebuild(context.WithoutCancel(a.Context()), false, operator)
			ended <- err
		}()
		a.Cleanup(func() { a.ok(<-ended) })
	}),
	"rebuild": func(a arguments) string {
		r, err := a.engine.Rebuild(a.Context(), a.has("dry"), operator)
		if err != nil {
			return a.refused(err)
		}
		return fmt.Sprintf("%d open rows", r.Open)
	},
}
