package dispatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	rules "github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	proc "github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Tests of the alerts of a project, from the cause to the message at the sink.

// webhook is a sink at ops.example.
func webhook() *sink.Config {
	return &sink.Config{Type: sink.Webhook, URL: "https://ops.example/robot"}
}

// rule creates an alert that sends to ops.example.
func (b *fixture) rule(w rules.When) rules.View {
	b.Helper()
	return must(b.engine.CreateAlert(b.Context(), project,
		rules.Change{Name: new(w.Kind), When: &w, Sink: webhook()}, operator))
}

// messages returns the states of the messages that arrived at ops.example, with their first lines.
func (b *fixture) messages() (all []string) {
	b.Helper()
	for _, h := range b.hits("ops.example") {
		var m struct {
			State string
			Lines []string
		}
		b.ok(json.Unmarshal([]byte(h.body), &m))
		all = append(all, m.State+": "+strings.Join(m.Lines, " "))
	}
	return all
}

// awaitMessage waits until the last message begins with a text.
func (b *fixture) awaitMessage(begin string, within time.Duration) {
	b.Helper()
	for end := time.Now().Add(within); ; time.Sleep(time.Second) {
		all := b.messages()
		if n := len(all); n > 0 && strings.HasPrefix(all[n-1], begin) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("no message %q within %s, but %q", begin, within, all)
		}
	}
}

// An endpoint whose receiver is down fires within a minute, and resolves after its recovery. Meanwhile the
// sink gets one message.
func TestReceiverDownFiresAndResolves(t *testing.T) {
	with(failing("shop")).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{Name: new("Tea shop"), URL: new("https://shop.example/")})
		b.rule(rules.When{
			Kind: "endpoint_success", Below: new(90.0), For: new(time.Duration(0)), Window: new(time.Minute),
			MinAttempts: new(int64(5)),
		})
		time.Sleep(20 * time.Second) // the first sample
		s := tiers(slicesOf(60, 5*time.Second)...)
		s.Endpoint = store.EndpointPrefix + ep.ID
		b.backlog(3, s)
		b.awaitMessage("firing: Tea shop: 0% of the attempts succeeded in the last 1m", time.Minute)
		a := must(b.engine.Alerts(b.Context(), project, store.AlertFilter{Limit: 10}))[0]
		b.check(a.State == rules.StateFiring && a.Firing == 1 && a.SentID != "", "alert: %+v", a)
		b.turn(always(200, ""))
		b.awaitMessage("resolved: Resolved after", 5*time.Minute)
		b.is("messages", len(b.messages()), 2)
	})
}

func slicesOf(n int, d time.Duration) (all []time.Duration) {
	for range n {
		all = append(all, d)
	}
	return all
}

// Dead callbacks fire an alert, dead messages of the alert do not: its sink is down too.
func TestDeadMessagesFireNothing(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		a := b.rule(rules.When{Kind: "dead_rate", AboveCount: new(int64(1))})
		time.Sleep(20 * time.Second)
		b.backlog(3, tiers())
		time.Sleep(time.Minute)
		b.check(len(b.hits("ops.example")) > 0, "no message of the first deaths")
		for range 5 { // the message dies after its last tier, and the alert stays as it is
			time.Sleep(30 * time.Minute)
			v := must(b.engine.Alert(b.Context(), project, a.ID))
			b.is("state", v.State, rules.StateOK)
		}
		firings := must(b.engine.AlertFirings(b.Context(), project, a.ID))
		b.is("firings", len(firings), 1)
		dead := must(b.db.List(b.Context(), project, store.Filter{States: []store.State{store.Dead},
			Topic: rules.Topic, Now: b.engine.Now(), Limit: 10}))
		b.check(len(dead.Callbacks) > 0, "no message died")
		last := must(b.engine.Alert(b.Context(), project, a.ID)).SentState
		b.is("the last message", last, store.Dead)
	})
}

// Only alerts send to the endpoint of a sink, and only changes of alerts change it. It goes with its last
// alert.
func TestSinkBelongsToAlerts(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		a := b.rule(rules.When{Kind: "dead_rate"})
		second := must(b.engine.CreateAlert(b.Context(), project, rules.Change{Name: new("second"),
			When: &rules.When{Kind: "schedule_late"}, Sink: webhook()}, operator))
		name := store.SinkPrefix + a.SinkID
		ep := must(b.db.EndpointByExternalID(b.Context(), project, name))
		b.is("sinks of both alerts", second.SinkID, a.SinkID)

		refused := b.offer(project, accept.Submission{Endpoint: name})[0].Err
		b.is("callback of a caller", b.wrongFields(refused), []string{"endpoint"})
		_, err := b.engine.PatchEndpoint(b.Context(), project, ep.ID,
			control.EndpointChange{Topics: &[]string{"*"}}, operator)
		b.is("change by a caller", b.wrongFields(err), []string{"id"})
		_, err = b.engine.DeleteEndpoint(b.Context(), project, ep.ID, operator)
		b.is("deletion by a caller", b.wrongFields(err), []string{"id"})
		_, err = b.engine.CreateEndpoint(b.Context(), project, control.EndpointChange{
			ExternalID: new(store.SinkPrefix + "mine"), URL: new("https://shop.example/")}, operator)
		b.is("endpoint of a caller", b.wrongFields(err), []string{"external_id"})

		cb := must(b.engine.TestAlert(b.Context(), project, a.ID, operator))
		b.awaitMessage("test: ", time.Minute)
		b.is("the message's topic", cb.Topic, rules.Topic)
		b.ok(b.engine.DeleteAlert(b.Context(), project, a.ID, operator))
		must(b.db.EndpointByExternalID(b.Context(), project, name))
		b.ok(b.engine.DeleteAlert(b.Context(), project, second.ID, operator))
		_, err = b.db.EndpointByExternalID(b.Context(), project, name)
		b.fails("the sink after its last alert", err, store.ErrNotFound)
	})
}

// sealFault fails the writes of secrets of sinks.
func sealFault(_ context.Context, c *call) error {
	if c.args[0].(store.Secret).Use == sign.UseURL {
		return errDown
	}
	return c.do()
}

// sinkSecret returns the secret at the endpoint of an alert's sink.
func (b *fixture) sinkSecret(a *rules.View) string {
	b.Helper()
	ep := must(b.db.EndpointByExternalID(b.Context(), project, store.SinkPrefix+a.SinkID))
	keys := must(secret.NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte,
		secret.MasterKeyBytes))}))
	read := secret.New(b.db, keys, new(clock.Clock), proc.Metrics{})
	own := must(read.Owned(b.Context(), secret.Owner{Project: project, Endpoint: ep.ID}, b.engine.Now()))
	if len(own.ByUse[sign.UseURL]) == 0 {
		return ""
	}
	return string(own.ByUse[sign.UseURL][0].Key)
}

// An alert whose sink cannot be prepared exists, and says why. The next message makes up for it: also after a
// process died between the endpoint and its secret.
func TestSinkIsPreparedByItsMessage(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.set(sealFault, "AddSecret")
		a := b.rule(rules.When{Kind: "dead_rate"})
		b.check(strings.Contains(a.LastError, "prepare the sink: "), "last error: %q", a.LastError)
		b.is("stored error", must(b.engine.Alert(b.Context(), project, a.ID)).LastError, a.LastError)
		b.is("secret", b.sinkSecret(&a), "")
		b.set(nil, "AddSecret")
		b = b.restart(nil)
		must(b.engine.TestAlert(b.Context(), project, a.ID, operator))
		b.awaitMessage("test: ", time.Minute)
		a = must(b.engine.PatchAlert(b.Context(), project, a.ID, rules.Change{Sink: webhook()}, operator))
		b.is("error of a prepared sink", a.LastError, "")
	})
}

// Two alerts have the same mailbox. A new password of one is used after a crash, too, and a change of the
// other one does not put the old password back.
func TestPasswordsOfAMailbox(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		mailbox := func(password string) *sink.Config {
			return &sink.Config{Type: sink.Email, Server: "smtps://mail.example", Username: "ops",
				Password: password, From: "ops@shop.example", To: []string{"night@shop.example"}}
		}
		create := func(name string) rules.View {
			return must(b.engine.CreateAlert(b.Context(), project, rules.Change{Name: &name,
				When: &rules.When{Kind: "dead_rate"}, Sink: mailbox("first-password")}, operator))
		}
		patch := func(a *rules.View, password string) {
			*a = must(b.engine.PatchAlert(b.Context(), project, a.ID,
				rules.Change{When: &rules.When{Kind: "reconcile"}, Sink: mailbox(password)}, operator))
		}
		has := func(a *rules.View, password string) {
			b.Helper()
			got := b.sinkSecret(a)
			b.check(strings.Contains(got, ":"+password+"@"), "secret of %s: %s", a.Name, got)
		}
		one, two := create("one"), create("two")
		b.is("sinks of both", one.SinkID, two.SinkID)
		b.set(fail(errDown), "UpsertEndpoints")
		patch(&one, "second-password")
		b.set(nil, "UpsertEndpoints")
		must(b.engine.TestAlert(b.Context(), project, one.ID, operator))
		has(&one, "second-password")
		patch(&two, "")
		has(&one, "second-password")
		has(&two, "first-password")
		patch(&two, "second-password")
		b.is("sinks of both with the new password", two.SinkID, one.SinkID)
	})
}

// The daily summary comes at its time, also when nothing happened. After a restart in between it comes once.
func TestDailySummary(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		at := time.Now().UTC().Add(15 * time.Minute).Format("15:04")
		a := must(b.engine.CreateAlert(b.Context(), project, rules.Change{
			Name: new("daily"), When: &rules.When{Kind: "dead_rate"}, Sink: webhook(),
			Digest: &rules.Digest{At: at},
		}, operator))
		b.backlog(3, tiers())
		time.Sleep(13 * time.Minute)
		b.is("messages before the time", len(b.messages()), 0)
		b = b.restart(nil)
		time.Sleep(10 * time.Minute)
		b.is("messages after the time", b.messages(),
			[]string{"digest: Last 24 hours: 3 accepted, 3 delivered, 0 dead; 0 open now. No alert fired."})
		next := must(b.engine.Alert(b.Context(), project, a.ID)).NextDigest
		b.is("the next one", next, a.NextDigest+24*time.Hour.Milliseconds())
	})
}

// What fires is reported once, whichever process evaluates it: a restart repeats no message, and loses none.
func TestRestartRepeatsNoMessage(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.rule(rules.When{Kind: "oldest_due", AboveTime: new(10 * time.Second)})
		b = b.restart(nil, func(o *options) { o.SendingOff = true })
		b.backlog(3, tiers())
		time.Sleep(5 * time.Minute)
		b = b.restart(nil)
		b.awaitMessage("firing: The oldest callback is overdue by", time.Minute)
		b.awaitMessage("resolved: ", 5*time.Minute)
		b.is("messages", len(b.messages()), 2)
	})
}

// A stop of all sending fires no alert about what waits. What does not move after it fires.
func TestAStopFiresNothing(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.rule(rules.When{Kind: "oldest_due", AboveTime: new(30 * time.Second)})
		why := store.Actor{Name: "li", Reason: "maintenance"}
		must(b.engine.StopSending(b.Context(), store.Forever, why))
		b.backlog(3, tiers())
		time.Sleep(5 * time.Minute)
		must(b.engine.StopSending(b.Context(), 0, why))
		time.Sleep(2 * time.Minute)
		b.is("messages", b.messages(), []string(nil))
	})
}

// A daily reconciliation without its list fires, and a later run of the day that is good resolves it.
func TestReconciliationFires(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		b.rule(rules.When{Kind: "reconcile"})
		run := store.ReconcileRun{Project: project, Day: "1999-12-31", Timezone: "UTC", To: b.engine.Now(),
			ExpectList: true}
		must(b.db.RunReconcile(b.Context(), run, 10, b.engine.Now(), operator))
		b.awaitMessage("firing: 1999-12-31: Daily reconciliation: the list of expected callbacks was not",
			time.Minute)
		run.ExpectList = false
		must(b.db.RunReconcile(b.Context(), run, 10, b.engine.Now(), operator))
		b.awaitMessage("resolved: ", 5*time.Minute)
	})
}

// An outbox table that no relay reads fires, and so do refused rows. Both resolve when a relay reports that
// all is well.
func TestOutboxTablesFire(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		hold := func(r store.RelayReport) {
			b.Helper()
			must(b.engine.HoldRelay(b.Context(), project, "pay",
				store.RelayHold{Holder: "relay-1", Origin: "db/pay/outbox", Report: &r}))
		}
		lag := b.rule(rules.When{Kind: "relay_lag"})
		hold(store.RelayReport{})
		time.Sleep(55 * time.Second)
		b.is("messages before the threshold", b.messages(), []string(nil))
		b.awaitMessage("firing: pay: The outbox table is delayed by 1m", 20*time.Second)
		firings := must(b.engine.AlertFirings(b.Context(), project, lag.ID))
		b.is("instance", firings[0].Instance, "pay")
		b.rule(rules.When{Kind: "relay_refused"})
		hold(store.RelayReport{RefusedRows: store.RelayCountLimit})
		b.awaitMessage("firing: pay: Refused rows of the outbox table: 10000+ (limit 0).", 20*time.Second)
		for range 40 {
			hold(store.RelayReport{})
			time.Sleep(3 * time.Second)
		}
		var resolved int
		for _, m := range b.messages() {
			if strings.HasPrefix(m, "resolved: ") {
				resolved++
			}
		}
		b.is("resolved alerts", resolved, 2)
	})
}

// Errors of an alert name its fields as the API does.
func TestWrongAlert(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for _, c := range []struct {
			want string
			when rules.When
		}{
			{"when.kind", rules.When{Kind: "cpu"}},
			{"when.above", rules.When{Kind: "oldest_due", AboveTime: new(time.Second)}},
			{"when.above", rules.When{Kind: "oldest_due", AboveCount: new(int64(5))}},
			{"when.above", rules.When{Kind: "dead_rate", AboveTime: new(time.Minute)}},
			{"when.above", rules.When{Kind: "reconcile", AboveCount: new(int64(1))}},
			{"when.above", rules.When{Kind: "relay_lag", AboveTime: new(time.Second)}},
			{"when.above", rules.When{Kind: "relay_refused", AboveTime: new(time.Minute)}},
			{"when.above", rules.When{Kind: "relay_refused", AboveCount: new(int64(10_001))}},
			{"when.below", rules.When{Kind: "endpoint_success", Below: new(0.9)}},
			{"when.below", rules.When{Kind: "dead_rate", Below: new(50.0)}},
			{"when.window", rules.When{Kind: "dead_rate", Window: new(time.Minute)}},
			{"when.for", rules.When{Kind: "dead_rate", For: new(2 * time.Hour)}},
			{"when.min_attempts", rules.When{Kind: "endpoint_success", MinAttempts: new(int64(0))}},
			{"when.endpoint", rules.When{Kind: "endpoint_success", Endpoint: "unknown"}},
			{"when.lane", rules.When{Kind: "endpoint_success", Lane: "l"}},
			{"when.schedule", rules.When{Kind: "schedule_late", Schedule: "sc_x"}},
		} {
			_, err := b.engine.CreateAlert(b.Context(), project,
				rules.Change{Name: new("n"), When: &c.when, Sink: webhook()}, operator)
			b.is(c.want, b.wrongFields(err), []string{c.want})
		}
		_, err := b.engine.CreateAlert(b.Context(), project, rules.Change{
			Digest: &rules.Digest{At: "9:00", Timezone: "Mars"}, Sink: &sink.Config{Type: "pager"}}, operator)
		b.is("the rest", b.wrongFields(err),
			[]string{"name", "when", "digest.at", "digest.timezone", "sink.type"})
	})
}
