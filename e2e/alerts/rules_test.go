package alerts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// resolveTime is when a message about the end of a fault must be there: a window of a minute passes, a minute
// without a breach follows, and a message a minute.
const resolveTime = 4 * time.Minute

// TestRules breaks what the alerts of a project watch. Each alert sends to the stand-in of a platform, within
// a minute of its cause, and once more when it is over.
func TestRules(t *testing.T) {
	for _, x := range []struct {
		name    string
		run     func(*rules)
		backend harness.Combination
	}{
		{"endpoint_success", receiverDown, harness.SQLiteEmbedded},
		{"poll_unresolved", pollStuck, harness.SQLiteEmbedded},
		{"oldest_due", backlog, harness.SQLiteEmbedded},
		{"dead_rate", deadSpike, harness.SQLiteEmbedded},
		{"breaker_open", breakerOpen, harness.SQLiteEmbedded},
		{"schedule_late", scheduleLate, harness.PostgresOnly},
		{"schedule_late-no-callback", scheduleFails, harness.SQLiteEmbedded},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(x.name, "-")
			r := &rules{Trial: harness.NewTrial(t, x.name), name: x.name, kind: kind}
			r.UseBackend(harness.NewBackend(r, x.backend))
			r.p = r.Serve()
			x.run(r)
		})
	}
}

// rules is an installation with one alert.
type rules struct {
	*harness.Trial
	// name begins with the kind of the alert.
	name, kind string
	p          *harness.Process
	robot      *testserver.Robot
	// cause is when the last fault or repair began.
	cause time.Time
}

// alert creates an alert of the kind that sends to the robot of a platform.
func (r *rules) alert(platform string, when harness.Submission) {
	when["kind"] = r.kind
	r.robot = testserver.NewRobot(r.T, platform)
	sink := harness.Submission{"type": platform, "url": r.robot.URL}
	if r.robot.Secret != "" {
		sink["secret"] = r.robot.Secret
	}
	r.p.Create("/v1/alerts", harness.Submission{"name": "lab", "when": when, "sink": sink})
}

// begin notes that a fault or its repair begins now.
func (r *rules) begin() { r.cause = time.Now() }

// fires waits until the robot has accepted a message with a text, within a minute of the fault.
func (r *rules) fires(text, fault string) {
	r.Helper()
	took := r.gets(1, text, fault, fireTime)
	report.addMessage(r.name, measured{fault: fault, sinks: r.robot.Kind(), fired: took})
}

// resolves waits until the robot has accepted the message about the end.
func (r *rules) resolves(repair string) {
	r.Helper()
	report.addMessage(r.name, measured{cleared: r.gets(2, "Resolved", repair, resolveTime)})
}

// gets waits until the robot has accepted so many messages, and checks that the last one has a text. It
// returns the time since the cause.
func (r *rules) gets(n int, text, cause string, within time.Duration) time.Duration {
	r.Helper()
	r.Eventually(time.Until(r.cause.Add(within)), cause, func() error {
		if got := r.robot.Accepted(); len(got) < n || !strings.Contains(got[len(got)-1], text) {
			return fmt.Errorf("the robot accepted %q and refused %q", got, r.robot.Refused())
		}
		return nil
	})
	took := time.Since(r.cause)
	r.Remark("%s: a message after %s", cause, took)
	if all, refused := r.robot.Accepted(), r.robot.Refused(); len(all) != n || len(refused) > 0 {
		r.Errorf("the robot accepted %q and refused %q", all, refused)
	}
	return took
}

// submit submits callbacks of a kind to an endpoint; empty: to the URL of the receiver. Each is tried again
// after 5 s.
func (r *rules) submit(n int, kind, endpoint string) {
	for i := range n {
		s := r.Numbered(kind)(i)
		if endpoint != "" {
			delete(s, "url")
			s["endpoint"] = endpoint
		}
		s["policy"] = harness.Tiers("2s", "5s", "5s", "5s", "5s", "5s", "5s", "1m", "1m")
		r.SubmitAndNote(s)
	}
}

// receiverDown lets an endpoint fail and recover.
func receiverDown(r *rules) {
	r.alert(testserver.RobotDingTalk, harness.Submission{
		"below": 90, "for": "0s", "window": "1m", "min_attempts": 5,
	})
	endpoint := r.p.Create("/v1/endpoints",
		harness.Submission{"url": r.Receiver.URL + "/down", "name": "Tea shop"})
	r.Receiver.AnswerKind("down", harness.Reply{Status: 500})
	r.begin()
	r.submit(10, "down", endpoint)
	r.fires("Tea shop", "an endpoint answers 500")
	r.begin()
	r.Receiver.AnswerKind("down", harness.Reply{})
	r.resolves("the endpoint answers 200")
}

// pollStuck lets polls end without a final answer.
func pollStuck(r *rules) {
	r.alert(testserver.RobotFeishu, harness.Submission{"above": 0, "window": "1m"})
	r.begin()
	r.SubmitAndNote(harness.Submission{
		"ref": "poll", "request": harness.Submission{"url": r.Receiver.URL + "/plain/poll", "method": "GET"},
		"policy": harness.Submission{"tiers": []string{"1s"}, "deadline": "3s"}, "until": harness.Finals(),
	})
	r.fires("status polls", "a poll with a deadline of 3 s gets no final answer")
	r.begin()
	r.resolves("no further poll is stuck")
}

// backlog makes a receiver too slow for its callbacks.
func backlog(r *rules) {
	r.alert(testserver.RobotSlack, harness.Submission{"above": "10s"})
	r.Receiver.AnswerKind("slow", harness.Reply{After: 1500 * time.Millisecond})
	endpoint := r.p.Create("/v1/endpoints",
		harness.Submission{"url": r.Receiver.URL + "/slow", "concurrency": 1})
	r.begin()
	r.submit(40, "slow", endpoint)
	r.fires("overdue", "40 callbacks wait for a receiver that takes 1.5 s for each")
	r.begin()
	r.Receiver.AnswerKind("slow", harness.Reply{})
	r.resolves("the receiver answers at once")
}

// deadSpike refuses callbacks until they are dead.
func deadSpike(r *rules) {
	r.alert(testserver.RobotDingTalk, harness.Submission{"above": 10})
	r.Receiver.AnswerKind("refused", harness.Reply{Status: 500})
	r.begin()
	r.AcceptMany(30, func(i int) harness.Submission {
		s := r.Numbered("refused")(i)
		s["policy"] = harness.Tiers("2s")
		return s
	})
	r.fires("callbacks became dead", "30 callbacks are answered 500 until they are dead")
	r.begin()
	r.resolves("no further callback dies")
}

// breakerOpen cuts the connections of a receiver, so that its circuit breaker opens.
func breakerOpen(r *rules) {
	r.alert(testserver.RobotWeCom, harness.Submission{"above": "10s"})
	r.Receiver.AnswerKind("cut", harness.Reply{Cut: true})
	r.begin()
	r.submit(30, "cut", "")
	r.fires("circuit breaker", "a receiver cuts all connections")
	r.begin()
	r.Receiver.AnswerKind("cut", harness.Reply{})
	r.resolves("the receiver answers")
}

// scheduleLate locks the row of a schedule, as a forgotten transaction of a person does.
func scheduleLate(r *rules) {
	r.alert(testserver.RobotTeams, harness.Submission{"above": "10s"})
	endpoint := r.p.Create("/v1/endpoints", harness.Submission{"url": r.Receiver.URL + "/plain/schedule"})
	id := r.p.Create("/v1/schedules", harness.Submission{
		"name": "every-two-seconds", "cron": "@every 2s",
		"callback": harness.Submission{"endpoint": endpoint, "payload": harness.Payload("schedule")},
	})
	r.AtLeast(fireTime, "runs of the schedule", 2, r.Receiver.Count)
	tx, err := r.Database().BeginTx(r.Context(), nil)
	r.Check(err)
	defer tx.Rollback() //nolint:errcheck // it is rolled back below
	r.begin()
	_, err = tx.ExecContext(r.Context(), `SELECT id FROM schedules WHERE id = $1 FOR UPDATE`,
		strings.TrimPrefix(id, "sc_"))
	r.Check(err)
	r.fires("The schedule is late", "a transaction locks the row of a schedule")
	r.begin()
	r.Check(tx.Rollback())
	r.resolves("the lock is released")
}

// scheduleFails deletes the endpoint of a schedule, and gives it another one.
func scheduleFails(r *rules) {
	r.alert(testserver.RobotTeams, harness.Submission{"above": "10s"})
	template := func() harness.Submission {
		endpoint := r.p.Create("/v1/endpoints", harness.Submission{"url": r.Receiver.URL + "/plain/schedule"})
		return harness.Submission{"endpoint": endpoint, "payload": harness.Payload("schedule")}
	}
	first := template()
	id := r.p.Create("/v1/schedules", harness.Submission{
		"name": "every-two-seconds", "cron": "@every 2s", "callback": first,
	})
	call := func(method, path string, in any) {
		_, err := r.p.Call(r.Context(), method, path, in, nil)
		r.Check(err)
	}
	r.begin()
	call(http.MethodDelete, "/v1/endpoints/"+first["endpoint"].(string), nil)
	r.fires("every-two-seconds", "the endpoint of a schedule is deleted")
	r.begin()
	call(http.MethodPatch, "/v1/schedules/"+id, harness.Submission{"callback": template()})
	r.resolves("the schedule has another endpoint")
}
