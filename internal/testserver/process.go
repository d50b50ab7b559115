package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A child is one process that speaks Redis's protocol; it runs or has ended.
type child struct {
	addr   string
	cmd    *exec.Cmd
	output bytes.Buffer  // its log; complete once ended is closed
	ended  chan struct{} // closed when it has
	ending error
}

// begin runs the program with the arguments in the directory, by way of the command in wrap if there is one.
// It does not wait for an answer.
func begin(tb testing.TB, program string, wrap []string, port int, dir string, args ...string) *child {
	tb.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("this test needs %[1]s in PATH (Debian and Ubuntu: apt-get install %[1]s); -short leaves it out: %[2]v",
			program, err)
	}
	words := slices.Concat(wrap, []string{binary}, args)
	c := &child{
		addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cmd: exec.Command(words[0], words[1:]...),
		ended: make(chan struct{}),
	}
	c.cmd.Dir = dir
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	endWithParent(c.cmd)
	if err := c.cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", program, err)
	}
	go func() {
		defer close(c.ended)
		c.ending = c.cmd.Wait()
	}()
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
		select {
		case <-c.ended:
			tb.Fatalf("redis-server ended: %v\n%s", c.ending, c.output.String())
		default:
		}
		_, err := ask(ctx, c.addr, "", "ping")
		if redis.HasErrorPrefix(err, "NOAUTH") {
			return nil // it answers; the password is the test's
		}
		return err
	})
}

// client returns a client of exactly one server. It follows no redirection and retries nothing.
func client(addr, password string) *redis.Client {
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
	c := client(addr, password)
	got, err := c.Do(ctx, args...).Result()
	return got, errors.Join(err, c.Close(), conn.Close())
}

// await repeats the question until it has no error.
func await(tb testing.TB, limit time.Duration, what string, question func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := question(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %v for %s: %v", limit, what, err)
		case <-pause.C:
		}
	}
}

// inSync reads INFO replication of a replica, and says what is missing.
func inSync(info any, err error) error {
	if err != nil {
		return err
	}
	text := fmt.Sprint(info)
	if !strings.Contains(text, "role:slave") || !strings.Contains(text, "master_link_status:up") {
		return fmt.Errorf("not in step: %.120s", text)
	}
	return nil
}
