package alerts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// robots are the stand-ins of one lab, each of another platform, and the setting with them.
type robots struct {
	*harness.Trial
	all []*testserver.Robot
}

// newRobots starts the robots.
func newRobots(t *harness.Trial) (r *robots, setting string) {
	r = &robots{Trial: t}
	var sinks []string
	for _, kind := range []string{testserver.RobotDingTalk, testserver.RobotFeishu, testserver.RobotSlack} {
		robot := testserver.NewRobot(t, kind)
		r.all = append(r.all, robot)
		secret := ""
		if robot.Secret != "" {
			secret = fmt.Sprintf(`,"secret":%q`, robot.Secret)
		}
		sinks = append(sinks, fmt.Sprintf(`{"type":%q,"url":%q%s}`, kind, robot.URL, secret))
	}
	return r, "[" + strings.Join(sinks, ",") + "]"
}

// fire waits until each robot has accepted the alert with a title, within a minute of the fault.
func (r *robots) fire(cause time.Time, title, fault string) {
	r.Helper()
	var kinds []string
	for _, robot := range r.all {
		kinds = append(kinds, robot.Kind())
	}
	report.addMessage("alert_sink: "+title, measured{
		fault: fault, sinks: strings.Join(kinds, ", "), fired: r.get(cause, "Alert: "+title),
	})
}

// resolve waits until each robot has accepted the message about the end, within a minute of the repair.
func (r *robots) resolve(cause time.Time, title string) {
	r.Helper()
	report.addMessage("alert_sink: "+title, measured{cleared: r.get(cause, "Resolved: "+title)})
	r.end()
}

// get waits until each robot has accepted a message with the text, within a minute of its cause. It returns
// the time since the cause.
func (r *robots) get(cause time.Time, text string) time.Duration {
	r.Helper()
	for _, robot := range r.all {
		r.Eventually(time.Until(cause.Add(fireTime)), "a robot gets "+text, func() error {
			if !strings.Contains(strings.Join(robot.Accepted(), "\n"), text) {
				return fmt.Errorf("%q, refused are %q", robot.Accepted(), robot.Refused())
			}
			return nil
		})
	}
	took := time.Since(cause)
	r.Remark("%q came %s after its cause", text, took.Round(100*time.Millisecond))
	return took
}

// end checks that each robot got one message of the fault and one of its end, and refused none.
func (r *robots) end() {
	r.Helper()
	for _, robot := range r.all {
		if n := len(robot.Accepted()); n != 2 || len(robot.Refused()) > 0 {
			r.Errorf("%d messages instead of 2: %q, refused %q", n, robot.Accepted(), robot.Refused())
		}
	}
}

// TestAlertSink breaks SQL, Redis and the key ring. The setting alert_sink gets a message of each within a
// minute, and one of its end.
func TestAlertSink(t *testing.T) {
	harness.Binary(t)
	for _, x := range []struct {
		name string
		run  func(*harness.Trial)
	}{{"sql-down", sinkSQLDown}, {"redis-down", sinkRedisDown}, {"key-missing", sinkKeyMissing}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.run(harness.NewTrial(t, "sink-"+x.name))
		})
	}
}

func sinkSQLDown(t *harness.Trial) {
	pg := testserver.NewPostgres(t)
	b := harness.NewBackend(t, harness.SQLiteRedis)
	b.Name, b.Postgres = harness.PostgresRedis.String(), pg.Database(t)
	t.UseBackend(b)
	r, setting := newRobots(t)
	t.Serve("--alert-sink", setting)
	cause := time.Now()
	t.Check(pg.Stop())
	r.fire(cause, "SQL cannot commit", "PostgreSQL is stopped")
	cause = time.Now()
	pg.Start(t)
	r.resolve(cause, "SQL cannot commit")
}

func sinkRedisDown(t *harness.Trial) {
	t.UseBackend(harness.NewBackend(t, harness.PostgresRedis))
	r, setting := newRobots(t)
	t.Serve("--alert-sink", setting)
	cause := time.Now()
	t.Backend.Server.Kill()
	r.fire(cause, "the queue is lost", "Redis is killed")
	cause = time.Now()
	t.Backend.Server.Start()
	r.resolve(cause, "the queue is lost")
}

func sinkKeyMissing(t *harness.Trial) {
	const added = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
	t.UseBackend(harness.NewBackend(t, harness.PostgresRedis))
	r, setting := newRobots(t)
	t.Serve("--alert-sink", setting)
	both := t.Serve("--master-key", added+","+harness.MasterKey)
	cause := time.Now()
	both.Create("/v1/endpoints", harness.Submission{"url": t.Receiver.URL + "/plain/endpoint"})
	r.fire(cause, "a master key is missing", "SQL names a master key that a process lacks")
	cause = time.Now()
	t.Execute(`DELETE FROM secrets WHERE key_id <> (SELECT key_id FROM secrets WHERE use = 'cursor')`)
	r.resolve(cause, "a master key is missing")
}
