package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A child is one process; it runs or has ended.
type child struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has
	ending error

	// Of a process that speaks Redis's protocol:
	addr   string
	output bytes.Buffer // its log; complete once ended is closed
}

// start starts the process. The kernel kills it when the test's process ends without its clean-up, by a panic
// or a time-out.
func (c *child) start() error {
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	c.ended = make(chan struct{})
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.cmd.Path, err)
	}
	go func() {
		defer close(c.ended)
		c.ending = c.cmd.Wait()
	}()
	return nil
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// begin runs the program with the arguments in the directory, by way of the command in wrap if there is one.
// It does not wait for an answer.
func begin(tb testing.TB, program string, wrap []string, port, dir string, args ...string) *child {
	tb.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("this test needs %[1]s in PATH (Debian and Ubuntu: apt-get install %[1]s); -short leaves "+
			"it out: %[2]v",
			program, err)
	}
	words := slices.Concat(wrap, []string{binary}, args)
	c := &child{cmd: exec.Command(words[0], words[1:]...)}
	c.addr = net.JoinHostPort("127.0.0.1", port)
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, &c.output, &c.output
	if err := c.start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.kill)
	return c
}

// kill is kill -9. It returns when the server has ended.
func (c *child) kill() {
	// The only error is that the process has ended already.
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// awaitAnswer waits until the server answers.
func (c *child) awaitAnswer(tb testing.TB) {
	tb.Helper()
	await(tb, startTimeout, "redis-server at "+c.addr, func(ctx context.Context) error {
		if c.hasEnded() {
			tb.Fatalf("redis-server ended: %v\n%s", c.ending, c.output.String())
		}
		_, err := ask(ctx, c.addr, "", "ping")
		if redis.HasErrorPrefix(err, "NOAUTH") {
			return nil // it answers; the password is the test's
		}
		return err
	})
}

// Client returns a client of exactly one server. It follows no redirection and retries nothing.
func Client(addr, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Password: password, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ask sends one command to exactly one server.
func ask(ctx context.Context, addr, password string, args ...any) (any, error) {
	// The client would log each refused connection.
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	c := Client(addr, password)
	got, err := c.Do(ctx, args...).Result()
	return got, errors.Join(err, c.Close(), conn.Close())
}

// ended is an error that no repetition changes.
type ended struct{ error }

// poll repeats the question until it has no error, or one that has ended it. It returns the last one.
func poll(limit time.Duration, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := question(ctx)
		if _, over := err.(ended); err == nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-pause.C:
		}
	}
}

// await is poll of what must come about.
func await(tb testing.TB, limit time.Duration, what string, question func(context.Context) error) {
	tb.Helper()
	if err := poll(limit, question); err != nil {
		tb.Fatalf("waited %v for %s: %v", limit, what, err)
	}
}

// Until polls a condition in real time, and fails the test if it does not hold within a minute.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	await(tb, time.Minute, what, func(context.Context) error {
		if condition() {
			return nil
		}
		return errors.New("it does not hold")
	})
}

// A group is the servers of a Cluster, or a master with its replicas. They have one password.
type group struct {
	tb       testing.TB
	password string
}

// authArgs are the arguments of its servers for the password.
func (g group) authArgs() []string {
	if g.password == "" {
		return nil
	}
	return []string{"--requirepass", g.password, "--masterauth", g.password}
}

// user is what stands before the hosts of a URL.
func (g group) user() string {
	if g.password == "" {
		return ""
	}
	return ":" + g.password + "@"
}

// Do sends one command to one server; it must succeed.
func (g group) Do(server *Redis, args ...any) any {
	g.tb.Helper()
	got, err := g.try(server, args...)
	if err != nil {
		g.tb.Fatalf("%v at %s: %v", args, server.Address(), err)
	}
	return got
}

func (g group) try(server *Redis, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return ask(ctx, server.Address(), g.password, args...)
}

// AwaitReplica waits until the server follows a master and has its data.
func (g group) AwaitReplica(server *Redis) {
	g.tb.Helper()
	await(g.tb, startTimeout, server.Address()+" to follow a master", func(context.Context) error {
		return g.says(server, "replication", "role:slave", "master_link_status:up")
	})
}

// says returns an error unless a section of a server's INFO has all of the texts.
func (g group) says(server *Redis, section string, texts ...string) error {
	info, err := g.try(server, "info", section)
	for _, want := range texts {
		if err == nil && !strings.Contains(fmt.Sprint(info), want) {
			err = fmt.Errorf("no %s in %.120s", want, info)
		}
	}
	return err
}
