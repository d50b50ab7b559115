package alerts

import (
	"fmt"
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
	for name, run := range map[string]func(*rules){
		"receiver-down": receiverDown, "poll-stuck": pollStuck, "backlog": backlog,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rules{Trial: harness.NewTrial(t, name)}
			r.UseBackend(harness.NewBackend(r, harness.SQLiteEmbedded))
			r.p = r.Serve()
			run(r)
		})
	}
}

// rules is an installation with one alert.
type rules struct {
	*harness.Trial
	p     *harness.Process
	robot *testserver.Robot
}

// alert creates an alert that sends to the robot of a platform.
func (r *rules) alert(platform string, when harness.Submission) {
	r.robot = testserver.NewRobot(r.T, platform)
	sink := harness.Submission{"type": platform, "url": r.robot.URL}
	if r.robot.Secret != "" {
		sink["secret"] = r.robot.Secret
	}
	r.p.Create("/v1/alerts", harness.Submission{"name": "lab", "when": when, "sink": sink})
}

// told waits until the robot has accepted so many messages, and checks that the last one has a text.
func (r *rules) told(n int, text, cause string, within time.Duration) {
	r.Helper()
	began := time.Now()
	r.Eventually(within, cause, func() error {
		if got := r.robot.Accepted(); len(got) < n || !strings.Contains(got[len(got)-1], text) {
			return fmt.Errorf("the robot accepted %q and refused %q", got, r.robot.Refused())
		}
		return nil
	})
	r.Remark("%s: a message after %s", cause, time.Since(began))
	if all, refused := r.robot.Accepted(), r.robot.Refused(); len(all) != n || len(refused) > 0 {
		r.Errorf("the robot accepted %q and refused %q", all, refused)
	}
}

// receiverDown lets an endpoint fail and recover.
func receiverDown(r *rules) {
	r.alert(testserver.RobotDingTalk, harness.Submission{
		"kind": "endpoint_success", "below": 90, "for": "0s", "window": "1m", "min_attempts": 5,
	})
	endpoint := r.p.Create("/v1/endpoints",
		harness.Submission{"url": r.Receiver.URL + "/down", "name": "Tea shop"})
	r.Receiver.AnswerKind("down", harness.Reply{Status: 500})
	for i := range 10 {
		s := r.Numbered("down")(i)
		delete(s, "url")
		s["endpoint"] = endpoint
		s["policy"] = harness.Tiers("2s", "5s", "5s", "5s", "5s", "5s", "5s", "1m", "1m")
		r.SubmitAndNote(s)
	}
	r.told(1, "Tea shop", "a receiver answers 500", fireTime)
	r.Receiver.AnswerKind("down", harness.Reply{})
	r.told(2, "Resolved", "the receiver is back", resolveTime)
}

// pollStuck lets polls end without a final answer.
func pollStuck(r *rules) {
	r.alert(testserver.RobotFeishu, harness.Submission{"kind": "poll_unresolved", "above": 0, "window": "1m"})
	r.SubmitAndNote(harness.Submission{
		"ref": "poll", "request": harness.Submission{"url": r.Receiver.URL + "/plain/poll", "method": "GET"},
		"policy": harness.Submission{"tiers": []string{"1s"}, "deadline": "3s"}, "until": harness.Finals(),
	})
	r.told(1, "status polls", "a poll gets no final answer", fireTime)
	r.told(2, "Resolved", "no further poll is stuck", resolveTime)
}

// backlog makes a receiver too slow for its callbacks.
func backlog(r *rules) {
	r.alert(testserver.RobotSlack, harness.Submission{"kind": "oldest_due", "above": "10s"})
	r.Receiver.AnswerKind("slow", harness.Reply{After: 1500 * time.Millisecond})
	endpoint := r.p.Create("/v1/endpoints",
		harness.Submission{"url": r.Receiver.URL + "/slow", "concurrency": 1})
	for i := range 40 {
		s := r.Numbered("slow")(i)
		delete(s, "url")
		s["endpoint"] = endpoint
		r.SubmitAndNote(s)
	}
	r.told(1, "overdue", "callbacks come faster than their receiver takes them", fireTime)
	r.Receiver.AnswerKind("slow", harness.Reply{})
	r.told(2, "Resolved", "the backlog is sent", resolveTime)
}
