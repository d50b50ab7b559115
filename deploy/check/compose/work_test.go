package compose

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A stack is what compose.yaml starts, without containers: the same programs with the same arguments, scripts
// and settings. Volumes are directories, and names of services are addresses of 127.0.0.1.
type stack struct {
	project *types.Project
	binary  string
	volumes string
	names   *strings.Replacer
}

// TestWorkWithoutContainers generates the keys, starts Redis, the receiver, both dispatchers and the sender,
// and waits until callbacks are delivered at the second attempt. Health checks and ends are those of
// compose.yaml too.
func TestWorkWithoutContainers(t *testing.T) {
	s := &stack{project: load(t), binary: program.Build(t), volumes: t.TempDir()}
	for _, dir := range []string{filepath.Dir(s.volumes), s.volumes} { // the users must reach the volumes
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	redis := testserver.NewRedis(t, s.project.Services["redis"].Command[1:]...)
	addresses := map[string]string{"dispatcher-1": address(t), "dispatcher-2": address(t),
		"receiver": address(t)}
	var pairs []string
	for _, name := range []string{"keys", "admin-key", "postgres-key"} {
		volume := filepath.Join(s.volumes, name)
		if err := errors.Join(os.Mkdir(volume, 0o755), os.Chown(volume, keysUser, keysUser)); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, "/"+name+"/", s.volumes+"/"+name+"/")
	}
	s.names = strings.NewReplacer(append(pairs, "redis://redis:6379", redis.URL,
		"0.0.0.0:9090", addresses["receiver"])...)

	s.runKeys(t, testserver.NewPostgres(t).URL())
	receiver := program.Start(t, as(dispatcherUser, s.binary,
		s.words(s.project.Services["receiver"].Command)...))
	dispatchers := map[string]*program.Process{}
	ops := map[string]string{}
	for name, service := range s.project.Services {
		if isDispatcher(service) {
			ops[name] = address(t)
			env := append(s.environment(service), "DISPATCHER_LISTEN="+addresses[name],
				"DISPATCHER_OPS_LISTEN="+ops[name], "DISPATCHER_EGRESS_ALLOW=127.0.0.1/32")
			dispatchers[name] = s.start(t, service, env)
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "sender.sh"))
	if err != nil {
		t.Fatal(err)
	}
	sender := as(postgresUser, "sh", "-c", string(script))
	sender.Env = append(sender.Environ(), "API=http://"+addresses["dispatcher-1"],
		"RECEIVER=http://"+addresses["receiver"], "KEY_FILE="+s.volumes+"/admin-key/admin_key")
	program.Start(t, sender)

	testserver.Until(t, "three callbacks are delivered, by both dispatchers together", func() bool {
		return delivered(ops["dispatcher-1"])+delivered(ops["dispatcher-2"]) >= 3
	})
	for _, text := range []string{"response 500", "response 200", "attempt 2"} {
		if !strings.Contains(receiver.Output(), text) {
			t.Errorf("the receiver has not printed %q", text)
		}
	}
	for name, p := range dispatchers {
		if err := p.Stop(time.Duration(*s.project.Services[name].StopGracePeriod)); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	}
}

// The users of the containers. For keys it is root without capabilities, which may not do more than another
// owner of the volumes.
const (
	keysUser       = 65533
	dispatcherUser = 65532
	postgresUser   = 70
)

// as returns a command that runs as a user without groups, which needs root.
func as(user uint32, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// address is a free one of this machine.
func address(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", testserver.FreePort(t))
}

// words are arguments with the names replaced.
func (s *stack) words(words []string) []string {
	replaced := make([]string, len(words))
	for i, word := range words {
		replaced[i] = s.names.Replace(word)
	}
	return replaced
}

// runKeys runs keys.sh twice: the second run must not replace a key. The URL of PostgreSQL is then replaced
// by that of a server of this test.
func (s *stack) runKeys(t *testing.T, database string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "keys.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 {
		if out, err := as(keysUser, "sh", "-c", s.names.Replace(string(text))).CombinedOutput(); err != nil {
			t.Fatalf("keys.sh: %v\n%s", err, out)
		}
		now := s.file(t, "keys/master_key") + s.file(t, "keys/database_url") +
			s.file(t, "admin-key/admin_key") + s.file(t, "postgres-key/password")
		if before != "" && now != before {
			t.Error("the second run of keys.sh has changed a key")
		}
		before = now
	}
	made, err := url.Parse(strings.TrimSpace(s.file(t, "keys/database_url")))
	if err != nil {
		t.Fatal(err)
	}
	postgres := s.project.Services["postgres"].Environment
	password, _ := made.User.Password()
	if made.Host != "postgres:5432" || made.User.Username() != *postgres["POSTGRES_USER"] ||
		made.Path != "/"+*postgres["POSTGRES_DB"] ||
		password != strings.TrimSpace(s.file(t, "postgres-key/password")) || len(password) < 32 {
		t.Errorf("the URL %s is not that of the service postgres", made.Redacted())
	}
	err = os.WriteFile(filepath.Join(s.volumes, "keys", "database_url"), []byte(database), 0o644)
	if err != nil {
		t.Fatal(err)
	}
}

// file reads a file of a volume as the users of the containers do.
func (s *stack) file(t *testing.T, name string) string {
	t.Helper()
	text, err := as(postgresUser, "cat", filepath.Join(s.volumes, name)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text)
}

// environment are the variables of a service, without the public URL, and no others.
func (s *stack) environment(service types.ServiceConfig) (env []string) {
	for name, value := range service.Environment {
		if name != "DISPATCHER_EGRESS_ALLOW" {
			env = append(env, name+"="+s.names.Replace(*value))
		}
	}
	return env
}

// start starts a dispatcher, and waits until its health check finds it well.
func (s *stack) start(t *testing.T, service types.ServiceConfig, env []string) *program.Process {
	t.Helper()
	cmd := as(dispatcherUser, s.binary, "serve")
	cmd.Env, cmd.Dir = env, t.TempDir()
	if err := os.Chmod(cmd.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p := program.Start(t, cmd)
	check := service.HealthCheck.Test[2:] // after CMD and the path of the program
	testserver.Until(t, service.Name+" is healthy", func() bool {
		cmd := exec.Command(s.binary, check...)
		cmd.Env = env
		return cmd.Run() == nil
	})
	if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) > 0 {
		t.Errorf("%s writes files: %v, %v", service.Name, entries, err)
	}
	return p
}

var succeeded = regexp.MustCompile(
	`(?m)^dispatcher_callbacks_terminal_total\{[^}]*state="succeeded"\} (\d+)$`)

// delivered is how many callbacks a process has delivered.
func delivered(ops string) (sum int) {
	for _, m := range succeeded.FindAllStringSubmatch(program.Get("http://"+ops+"/metrics"), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum
}
