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

// get waits until each robot has accepted a message with the text, within a minute of its cause.
func (r *robots) get(cause time.Time, text string) {
	r.Helper()
	for _, robot := range r.all {
		r.Eventually(time.Until(cause.Add(fireTime)), "a robot gets "+text, func() error {
			if !strings.Contains(strings.Join(robot.Accepted(), "\n"), text) {
				return fmt.Errorf("%q, refused are %q", robot.Accepted(), robot.Refused())
			}
			return nil
		})
	}
	r.Remark("%q came %s after its cause", text, time.Since(cause).Round(100*time.Millisecond))
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
	r.get(cause, "Alert: SQL cannot commit")
	cause = time.Now()
	pg.Start(t)
	r.get(cause, "Resolved: SQL cannot commit")
	r.end()
}

func sinkRedisDown(t *harness.Trial) {
	t.UseBackend(harness.NewBackend(t, harness.PostgresRedis))
	r, setting := newRobots(t)
	t.Serve("--alert-sink", setting)
	cause := time.Now()
	t.Backend.Server.Kill()
	r.get(cause, "Alert: the index is lost")
	cause = time.Now()
	t.Backend.Server.Start()
	r.get(cause, "Resolved: the index is lost")
	r.end()
}

func sinkKeyMissing(t *harness.Trial) {
	const added = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
	t.UseBackend(harness.NewBackend(t, harness.PostgresRedis))
	r, setting := newRobots(t)
	t.Serve("--alert-sink", setting)
	both := t.Serve("--master-key", added+","+harness.MasterKey)
	cause := time.Now()
	both.Create("/v1/endpoints", harness.Submission{"url": t.Receiver.URL + "/plain/endpoint"})
	r.get(cause, "Alert: a master key is missing")
	cause = time.Now()
	t.Execute(`DELETE FROM secrets WHERE key_id <> (SELECT key_id FROM secrets WHERE use = 'cursor')`)
	r.get(cause, "Resolved: a master key is missing")
	r.end()
}
