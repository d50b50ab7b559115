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

// A child is a process that runs or has ended.
type child struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
	ending error         // valid after ended is closed

	// These are set for a server with Redis's protocol.
	addr   string
	output bytes.Buffer // the log, complete after ended is closed
}

// start starts the process. The kernel kills it if the test's process ends without its cleanups, for example
// after a panic or a timeout.
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

// begin starts a program in a directory, through the command in wrap unless that is empty. It does not wait
// until the server answers. The process ends with the test.
func begin(tb testing.TB, program string, wrap []string, port, dir string, args ...string) *child {
	tb.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("this test needs %[1]s in PATH (Debian and Ubuntu: apt-get install %[1]s); -short skips "+
			"the test: %[2]v", program, err)
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

// kill sends SIGKILL. It returns when the server has ended.
func (c *child) kill() {
	// The only possible error is that the process has already ended.
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
			return nil // the server answers; the password is not needed here
		}
		return err
	})
}

// Client returns a client of exactly one server. It follows no redirection and does not retry.
func Client(addr, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Password: password, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ask sends one command to exactly one server.
func ask(ctx context.Context, addr, password string, args ...any) (any, error) {
	// A plain dial comes first, because the client would log each refused connection.
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	c := Client(addr, password)
	got, err := c.Do(ctx, args...).Result()
	return got, errors.Join(err, c.Close(), conn.Close())
}

// ended is an error that ends the innermost poll. poll returns the error in it.
type ended struct{ error }

// poll repeats check until it returns nil or an ended error, or until the limit has passed. It returns the
// last error.
func poll(limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := check(ctx)
		if over, is := err.(ended); is {
			return over.error
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-pause.C:
		}
	}
}

// await polls, and fails the test if check does not succeed within the limit.
func await(tb testing.TB, limit time.Duration, name string, check func(context.Context) error) {
	tb.Helper()
	if err := poll(limit, check); err != nil {
		tb.Fatalf("waited %v for %s: %v", limit, name, err)
	}
}

// Until polls a condition in real time, and fails the test if it does not hold within a minute.
func Until(tb testing.TB, name string, condition func() bool) {
	tb.Helper()
	await(tb, time.Minute, name, func(context.Context) error {
		if condition() {
			return nil
		}
		return errors.New("the condition does not hold")
	})
}

// A group is a set of servers with one password: the nodes of a Cluster, or a master and its replicas.
type group struct {
	tb       testing.TB
	password string
}

// authArgs returns the servers' arguments for the password.
func (g group) authArgs() []string {
	if g.password == "" {
		return nil
	}
	return []string{"--requirepass", g.password, "--masterauth", g.password}
}

// user returns the user part of a URL.
func (g group) user() string {
	if g.password == "" {
		return ""
	}
	return ":" + g.password + "@"
}

// Do sends one command to one server. An error fails the test.
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
		return g.infoHas(server, "replication", "role:slave", "master_link_status:up")
	})
}

// infoHas returns an error unless a section of a server's INFO has all texts.
func (g group) infoHas(server *Redis, section string, texts ...string) error {
	info, err := g.try(server, "info", section)
	for _, want := range texts {
		if err == nil && !strings.Contains(fmt.Sprint(info), want) {
			err = fmt.Errorf("no %s in %.120s", want, info)
		}
	}
	return err
}
