package api_test

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// asked is what Outcomes was given.
type asked struct {
	after store.OutcomeCursor
	limit int
	wait  time.Duration
}

// Outcomes returns those of the stub after the cursor.
func (e *engine) Outcomes(
	_ context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration,
) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	err := e.noted("Outcomes", project, "", store.Actor{}, asked{after, limit, wait})
	var events []store.TerminalEvent
	next := after
	for _, one := range e.outcomes {
		if one.Cursor.Tx > after.Tx && len(events) < limit {
			events, next = append(events, one), one.Cursor
		}
	}
	return events, next, err
}

// somePoll is an open one with all that a poll can have.
func somePoll() control.PollView {
	cb := sample()
	cb.Kind, cb.Method, cb.URL = store.Poll, "GET", "https://upstream.example/query?out_trade_no=7&mchid=9"
	const rule = `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],` +
		`"failure":[{"status":[404]}]},"hold_if":[{"pointer":"/code","eq":"BUSY"}],` +
		`"evaluate":["200-299",404],"error_budget":20}`
	cb.Success = store.Success{Rule: rule}
	return control.PollView{
		Callback: cb, Rule: rule,
		Detail: store.PollDetail{
			Context: `{"channel": "alipay"}`, Errors: 3,
			OnResult: &store.ResultDraft{Callback: store.Callback{
				URL: "https://shop.example/notify?token=a", EndpointID: bareEndpoint, Topic: "payment.result",
				Ref: "o-1",
			}},
		},
	}
}

// AcceptPoll says what is wrong as the engine does: of the result callback, with its name before it.
func (e *engine) AcceptPoll(
	_ context.Context, project string, s accept.PollSubmission,
) (accept.Receipt, error) {
	wrong := slices.Clone(s.Invalid)
	if s.OnResult != nil {
		for _, w := range s.OnResult.Invalid {
			wrong = append(wrong, store.FieldError{Field: "on_result." + w.Field, Message: w.Message})
		}
	}
	return accept.Receipt{Callback: e.callback, Replayed: e.replayed},
		e.noted("AcceptPoll", project, "", store.Actor{}, s, wrong...)
}

func (e *engine) ResolvePoll(
	_ context.Context, project, id string, r control.ResolveRequest, by store.Actor,
) (store.ResolvedPoll, error) {
	cb := e.callback
	cb.Kind, cb.State, cb.Reason, cb.FinishedAt = store.Poll, store.Succeeded, store.ResolvedOutside, nowMS
	done := store.ResolvedPoll{Result: store.ResolveDone, Callback: cb}
	return done, e.noted("ResolvePoll", project, id, by, r, r.Invalid...)
}

func (e *engine) Poll(_ context.Context, project, id string) (control.PollView, error) {
	if id != bareID {
		return control.PollView{}, store.ErrNotFound
	}
	return e.poll, e.noted("Poll", project, id, store.Actor{}, nil)
}

// Books has two groups, or one of everything.
func (e *engine) Books(_ context.Context, project string, q store.BooksQuery) ([]store.Books, error) {
	err := e.noted("Books", project, "", store.Actor{}, q)
	one := store.Books{Accepted: 12, Succeeded: 7, Dead: 2, Canceled: 1, Open: 2}
	if q.GroupBy == "" {
		return []store.Books{one}, err
	}
	other := one
	other.Group, other.Open = bareEndpoint, 3 // it does not balance
	return []store.Books{one, other}, err
}

// comparison is what Compare was given.
type comparison struct {
	from, to int64
	refs     []string
	most     int
}

func (e *engine) Compare(
	_ context.Context, project string, from, to int64, refs []string, most int,
) (store.Comparison, error) {
	return store.Comparison{Matched: 2, Missing: []string{"o-3"}, Extra: []string{"o-8", "o-9"}, More: true},
		e.noted("Compare", project, "", store.Actor{}, comparison{from, to, refs, most})
}

const (
	bareRedrive = "01JD6QZ000000000000000000R"
	oneRedrive  = "rd_" + bareRedrive
)

func someRedrive() store.Redrive {
	return store.Redrive{
		ID: bareRedrive, Project: store.DefaultProject, Action: store.RedriveRetry,
		Shown: `{"state":"dead","topic":"payment.succeeded"}`, Ladder: store.Restart,
		Rate: store.Rate{Count: 100, Per: 1e9}, Actor: "admin key", Reason: "the merchant is back",
		State: store.RedriveRunning, Matched: 1500, Done: 700, Failed: 3,
		CreatedAt: nowMS, UpdatedAt: nowMS + 7000,
	}
}

// Redrive answers with what it was asked to do.
func (e *engine) Redrive(
	_ context.Context, project string, q control.RedriveRequest, by store.Actor,
) (store.Redrive, error) {
	r := someRedrive()
	r.Action, r.Shown, r.Ladder, r.URL = store.RedriveAction(q.Action), q.Shown, store.Ladder(q.Ladder), q.URL
	if q.Delay != nil {
		r.Delay = q.Delay.Milliseconds()
	}
	return r, e.noted("Redrive", project, "", by, q, q.Invalid...)
}

func (e *engine) SetRedrive(
	_ context.Context, project, id string, to store.RedriveState, by store.Actor,
) (store.Redrive, error) {
	r := someRedrive()
	r.State = to
	return r, e.noted("SetRedrive", project, id, by, to)
}

// rows stands for the store: its method Redrive reads what the engine's makes.
type rows struct{ *engine }

func (r rows) Redrive(_ context.Context, project, id string) (store.Redrive, error) {
	if id != bareRedrive {
		return store.Redrive{}, store.ErrNotFound
	}
	return someRedrive(), r.noted("ReadRedrive", project, id, store.Actor{}, nil)
}

// Redrives are three, whose ids end in 3, 2 and 1.
func (r rows) Redrives(_ context.Context, project, after string, limit int) ([]store.Redrive, error) {
	var redrives []store.Redrive
	for _, id := range []string{"3", "2", "1"} {
		one := someRedrive()
		one.ID = bareID[:25] + id
		redrives = append(redrives, one)
	}
	redrives = behind(redrives, after, limit, func(one store.Redrive) string { return one.ID })
	return redrives, r.noted("Redrives", project, after, store.Actor{}, limit)
}

const (
	bareSchedule = "01JD6QZ000000000000000000S"
	oneSchedule  = "sc_" + bareSchedule
)

func someSchedule() store.Schedule {
	return store.Schedule{
		ID: bareSchedule, Project: store.DefaultProject, Name: "daily-books", Cron: "30 1 * * *",
		Timezone: "Asia/Shanghai",
		Template: `{"url":"https://books.example/close",` +
			`"headers":{"X-Shop":"7","authorization":"Basic cGFzcw==","X-Api-Key":""},` +
			`"payload":{ "kind" : "daily", "n": 1.0 }}`,
		Missed: store.MissedSkip, Enabled: true, NextAt: nowMS + dayMS, LastAt: nowMS, LastID: bareID,
		Version: 3, CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

func (e *engine) CreateSchedule(
	_ context.Context, project string, ch control.ScheduleChange, by store.Actor,
) (store.Schedule, error) {
	return e.schedule, e.noted("CreateSchedule", project, "", by, ch, ch.Invalid...)
}

func (e *engine) PatchSchedule(
	_ context.Context, project, id string, ch control.ScheduleChange, by store.Actor,
) (store.Schedule, error) {
	return e.schedule, e.noted("PatchSchedule", project, id, by, ch, ch.Invalid...)
}

func (e *engine) DeleteSchedule(_ context.Context, project, id string, by store.Actor) error {
	return e.noted("DeleteSchedule", project, id, by, nil)
}

func (e *engine) RunSchedule(_ context.Context, project, id string, by store.Actor) (store.Callback, error) {
	return e.callback, e.noted("RunSchedule", project, id, by, nil)
}

func (e *engine) Schedule(_ context.Context, project, id string) (store.Schedule, error) {
	if id != bareSchedule {
		return store.Schedule{}, store.ErrNotFound
	}
	return e.schedule, e.noted("Schedule", project, id, store.Actor{}, nil)
}

// Schedules are three, with the ids 3, 2 and 1.
func (e *engine) Schedules(
	_ context.Context, project string, f store.ScheduleFilter,
) ([]store.Schedule, error) {
	var schedules []store.Schedule
	for _, id := range []string{"3", "2", "1"} {
		one := e.schedule
		one.ID = bareID[:25] + id
		schedules = append(schedules, one)
	}
	schedules = behind(schedules, f.After, f.Limit, func(one store.Schedule) string { return one.ID })
	return schedules, e.noted("Schedules", project, "", store.Actor{}, f)
}

func (e *engine) ScheduleRuns(_ context.Context, project, id string) ([]store.ScheduleRun, error) {
	if id != bareSchedule {
		return nil, store.ErrNotFound
	}
	return []store.ScheduleRun{
		{CallbackID: bareEndpoint, DueAt: nowMS, FiredAt: nowMS, Trigger: store.Manual},
		{CallbackID: bareID, DueAt: nowMS - dayMS, FiredAt: nowMS - dayMS + 12, Trigger: store.BySchedule},
	}, e.noted("ScheduleRuns", project, id, store.Actor{}, nil)
}
