package dispatch_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The methods of arguments in this file build requests and options from the arguments of a line.

// inject adds an effect to calls, from the start of the engine if none runs yet.
func (a arguments) inject(w effect, ops ...string) {
	times := cmp.Or(a.number("times"), -1)
	if a.fixture == nil {
		a.next.tweaks = append(a.next.tweaks, func(o *options) { o.times(times, w, ops...) })
		return
	}
	a.times(times, w, ops...)
}

// options returns the options of an engine.
func (a arguments) options() []tweak {
	return []tweak{func(o *options) {
		for _, w := range a.words {
			switch w {
			case "off":
				sendingOff(o)
			case "shared":
				o.Embedded = false
			case "named":
				o.Name, o.Version, o.Roles, o.Workers = "one", "1.2.3", []string{"api", "worker"}, 7
				o.Embedded = slices.Contains(a.words, "embedded")
			case "api":
				o.Name, o.Embedded, o.NoWorker = "api", false, true
			case "templates":
				o.ReadTemplate = readTemplate
			case "logged":
				a.log.log(o)
			case "index":
				on(a.fixture.index)(o)
			case "older":
				foreignBuild(a.T, schedule.ErrOlder)(o)
			case "newer":
				foreignBuild(a.T, schedule.ErrNewer)(o)
			}
		}
		if a.has("foreign") {
			on(foreignIndex(a.T, int64(a.number("foreign"))))(o)
			for i, id := range unknownIDs {
				a.ids[fmt.Sprint("theirs", i+1)] = id
			}
		}
		o.PanGuard = store.PanGuard(a.named["guard"])
		if a.has("clock") { // the index's clock is ahead of this process's
			ahead := a.duration("clock")
			on(memq.New(memq.Options{Now: func() time.Time { return time.Now().Add(ahead) }}))(o)
		}
		if a.has("horizon") {
			within(o.index, a.duration("horizon"))(o)
		}
		o.Workers = cmp.Or(a.number("workers"), o.Workers)
		o.LaneConcurrency, o.DrainTimeout = a.number("lane"), a.duration("drain")
	}}
}

// receiver returns the responses to requests.
func (a arguments) receiver() answers {
	var say answers
	switch what := a.words[0]; {
	case what == "hangs":
		say = hangs
	case what == "refuses":
		say = func(context.Context, hit, int) (*http.Response, error) {
			return nil, errors.New("connection refused")
		}
	case what == "bank":
		say = bank(a.words[1:]...)
	case a.has("retry_after"):
		say = always(must(strconv.Atoi(what)), "", "Retry-After", a.named["retry_after"])
	default:
		var statuses []int
		for _, w := range a.words {
			statuses = append(statuses, must(strconv.Atoi(w)))
		}
		say = inTurn(statuses...)
	}
	if a.has("at") {
		say = answering(a.named["at"], say)
	}
	if a.has("fails") {
		say = divided(a.named["fails"], always(500, ""), say)
	}
	if a.has("after") {
		var came atomic.Int64
		answer, each := say, a.duration("each")
		say = func(ctx context.Context, h hit, before int) (*http.Response, error) {
			return after(a.duration("after")+time.Duration(came.Add(1)-1)*each, answer)(ctx, h, before)
		}
	}
	return divided(a.named["at"], a.wire.around(say), say)
}

func (a arguments) policy() (choice accept.Choice) {
	choice.PolicyName = a.named["policy"]
	if a.has("tiers") {
		var waits []time.Duration
		for _, wait := range *a.list("tiers") {
			if wait != "none" {
				waits = append(waits, must(time.ParseDuration(wait)))
			}
		}
		choice = tiers(waits...).Choice
	}
	return choice
}

func (a arguments) headers() *[]store.Header {
	if !a.has("header") {
		return nil
	}
	name, value, _ := strings.Cut(a.named["header"], ":")
	return &[]store.Header{{Name: name, Value: value}}
}

// submission returns the submission with that number. {i} stands for the number.
func (a arguments) submission(i int) accept.Submission {
	numbered := func(name string) string {
		return strings.ReplaceAll(a.named[name], "{i}", strconv.Itoa(i+1))
	}
	s := accept.Submission{
		URL: numbered("url"), Endpoint: numbered("endpoint"), Lane: numbered("lane"),
		LockKey: numbered("lock"),
		Order:   a.named["order"], Choice: a.policy(), Delay: a.maybeDuration("delay"),
		Topic:     a.named["topic"],
		ExpiresIn: a.maybeDuration("expires"), IdempotencyKey: a.named["key"], Ref: a.named["ref"],
	}
	if headers := a.headers(); headers != nil {
		s.Headers = *headers
	}
	if a.has("host") {
		s.URL = "https://" + numbered("host") + ".example/"
	}
	if id := a.ids[s.Endpoint]; id != "" {
		s.Endpoint = store.EndpointPrefix + id
	}
	if a.has("in") {
		s.DueAt = new(moment(a.named["in"]) + int64(i)*a.duration("step").Milliseconds())
	}
	if a.has("version") {
		s.Supersede, s.Version = true, new(int64(a.number("version")))
	}
	if a.has("key") {
		s.Route, s.Fingerprint = "callbacks", []byte(a.named["key"]+a.named["body"])
	}
	if keys := a.list("keys"); keys != nil {
		s.IdempotencyKey, s.Route, s.Fingerprint = (*keys)[i], "callbacks", []byte((*keys)[i])
	}
	if a.has("body") {
		s.Body, s.BodyField = []byte(strings.ReplaceAll(a.named["body"], `\0`, "\x00")), a.named["body_field"]
	}
	if a.has("label") {
		name, value, _ := strings.Cut(a.named["label"], ":")
		s.Labels = map[string]string{name: value}
	}
	return s
}

// accepts submits one callback. A name such as a*20 submits twenty, named a1 to a20.
func (a arguments) accepts() string {
	name, times, many := strings.Cut(a.words[0], "*")
	n := 1
	if many {
		n = must(strconv.Atoi(times))
	}
	of := project
	if a.has("project") {
		of = a.named["project"]
	}
	var subs []accept.Submission
	for i := range n {
		subs = append(subs, a.submission(i))
	}
	var names, refused []string
	for part := range slices.Chunk(subs, 1000) {
		receipts, err := a.engine.Accept(a.Context(), of, completed(part))
		if err != nil {
			return a.refused(err)
		}
		for _, r := range receipts {
			called := name
			if many {
				called += strconv.Itoa(len(refused) + 1)
			}
			if r.Err == nil {
				a.callback(called, r.Callback.ID)
			}
			names, refused = append(names, called), append(refused, a.refused(r.Err))
		}
	}
	return a.same(names, refused)
}

func (a arguments) polls() string {
	p := paidPoll(a.words[0])
	p.Choice, p.ExpiresIn = a.policy(), a.maybeDuration("expires")
	if a.has("endpoint") {
		p.URL, p.Endpoint = "", store.EndpointPrefix+a.id(a.named["endpoint"])
	}
	for name, text := range map[string]*string{"ref": &p.Ref, "url": &p.URL, "at": &p.Endpoint,
		"method": &p.Method,
		"signer": &p.Signer, "result": &p.OnResult.URL} {
		if value := a.text(name); value != nil {
			*text = *value
		}
	}
	for name, text := range map[string]*[]byte{"hold_if": (*[]byte)(&p.HoldIf), "until": (*[]byte)(&p.Until),
		"evaluate": (*[]byte)(&p.Evaluate), "context": (*[]byte)(&p.Context)} {
		if value := a.text(name); value != nil {
			*text = []byte(transcript.Expand(a, *value))
		}
	}
	if headers := a.headers(); headers != nil {
		p.Headers = *headers
	}
	p.OnResult.Delay = a.maybeDuration("result_delay")
	if a.has("budget") {
		p.ErrorBudget = new(a.number("budget"))
	}
	if a.has("deadline") {
		p.Policy.RepeatLast, p.Policy.Deadline = true, a.duration("deadline")
	}
	if a.has("stop_on") {
		p.Policy.StopOn = []int{a.number("stop_on")}
	}
	r, err := a.engine.AcceptPoll(a.Context(), project, p)
	if err != nil {
		return a.refused(err)
	}
	a.callback(a.words[0], r.Callback.ID)
	a.things["poll:"+a.words[0]] = func() any {
		return must(a.engine.Poll(a.Context(), project, r.Callback.ID))
	}
	return map[bool]string{true: "replayed"}[r.Replayed]
}

func (a arguments) endpointChange() control.EndpointChange {
	ch := control.EndpointChange{
		URL: a.text("url"), ExternalID: a.text("external"), URLOverride: a.text("override"),
		Topics:  a.list("topics"),
		Headers: a.headers(), Rate: a.text("rate"), Choice: a.policy(),
	}
	if a.has("concurrency") {
		ch.Concurrency = new(a.number("concurrency"))
	}
	if a.has("enabled") {
		ch.Enabled = new(a.named["enabled"] == "true")
	}
	return ch
}

func (a arguments) scheduleChange() control.ScheduleChange {
	ch := control.ScheduleChange{Name: a.text("name"), Cron: a.text("cron"), Timezone: a.text("zone"),
		Missed: a.text("missed")}
	if a.has("enabled") {
		ch.Enabled = new(a.named["enabled"] == "true")
	}
	if a.has("template") {
		ch.Template = []byte(a.named["template"])
	}
	return ch
}

func (a arguments) events() string {
	s := a.submission(0)
	s.IdempotencyKey, s.Route = a.named["key"], "events"
	r, err := a.fixture.event(s)
	if err != nil {
		return a.refused(err)
	}
	for i, id := range r.Callbacks {
		a.callback(a.words[0]+strconv.Itoa(i+1), id)
	}
	return fmt.Sprintf("%d callbacks%s", len(r.Callbacks), map[bool]string{true: ", replayed"}[r.Replayed])
}

func (a arguments) pauses() {
	until, by := moment(a.words[0]), store.Actor{Name: "operator",
		Reason: cmp.Or(a.named["reason"], "a test")}
	switch {
	case a.has("lane"):
		lane := a.named["lane"]
		if id := a.ids[lane]; id != "" {
			lane = store.EndpointPrefix + id
		}
		must(a.engine.PauseLane(a.Context(), project, lane, until, by))
	case a.has("endpoint"):
		must(a.engine.PauseEndpoint(a.Context(), project, a.id(a.named["endpoint"]), until, by))
	default:
		must(a.engine.PauseProject(a.Context(), project, until, by))
	}
}

// redrives starts one redrive of a topic, or several with a name such as r*20.
func (a arguments) redrives() string {
	r := control.RedriveRequest{
		Action: a.named["action"], Filter: store.Filter{Topic: a.named["topic"]}, FilterText: "{}",
		Rate:   a.named["rate"],
		Ladder: a.named["ladder"], URL: a.named["url"], Delay: a.maybeDuration("delay"),
	}
	if a.has("topic") {
		r.FilterText = store.JSONText(`{"topic":"` + a.named["topic"] + `"}`)
	}
	of := cmp.Or(a.named["project"], project)
	name, times, many := strings.Cut(a.words[0], "*")
	for i := range must(strconv.Atoi(cmp.Or(times, "1"))) {
		made, err := a.engine.Redrive(a.Context(), of, r, operator)
		if err != nil {
			return a.refused(err)
		}
		called := name
		if many {
			called += strconv.Itoa(i + 1)
		}
		a.call(called, made.ID, func(id string) any { return must(a.db.Redrive(a.Context(), of, id)) })
	}
	return ""
}
