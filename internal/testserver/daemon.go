package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// daemonStart bounds the wait for a daemon to answer or to end.
const daemonStart = 30 * time.Second

// A daemon is a server that refuses to run as root, on a port of 127.0.0.1. It can be ended and started again
// on the same port with the same data.
type daemon struct {
	name       string
	url        *url.URL
	dir        string
	credential *syscall.Credential
	server     *child

	// run returns the command of the server for the port of url.
	run func() *exec.Cmd
	// replies returns nil if this server answers on the port, and not another one.
	replies func(context.Context) error
}

// daemonDir makes a directory for a daemon that is removed with the test. A daemon's user cannot read the
// parents of tb.TempDir.
func daemonDir(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", name+"-*")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the directory of %s: %v", name, err)
		}
	})
	return dir
}

// newDaemon returns a daemon that does not run yet. Its user becomes the owner of the directory.
func newDaemon(tb testing.TB, name, dir string, replies func(context.Context) error) daemon {
	tb.Helper()
	credential, err := daemonUser()
	if err != nil {
		tb.Fatal(err)
	}
	if credential != nil {
		if err := os.Chown(dir, int(credential.Uid), int(credential.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	return daemon{name: name, dir: dir, credential: credential, replies: replies}
}

// launch starts the server for the first time, on a free port. The signal ends it with the test.
func (d *daemon) launch(tb testing.TB, stop syscall.Signal, run func() *exec.Cmd) {
	tb.Helper()
	d.run = run
	tb.Cleanup(func() { d.shutDown(tb, stop) })
	d.url.Host = net.JoinHostPort("127.0.0.1", FreePort(tb))
	if err := d.try(); err != nil {
		tb.Fatalf("%s does not answer: %v\n%s", d.name, err, d.Log())
	}
}

// command returns a command that runs as the server's user in its directory.
func (d *daemon) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Dir = d.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.credential}
	return c
}

// Start starts a server that has ended, and returns when it answers. A start fails while processes of a
// killed server are still ending, so it is repeated.
func (d *daemon) Start(tb testing.TB) {
	tb.Helper()
	if err := poll(daemonStart, func(context.Context) error {
		err := d.try()
		if err != nil && !d.HasEnded() {
			return ended{err}
		}
		return err
	}); err != nil {
		tb.Fatalf("%s does not answer: %v\n%s", d.name, err, d.Log())
	}
}

// SetClock lets the server's clock be ahead by a time, or behind by a negative one, from its next start on.
func (d *daemon) SetClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		tb.Fatalf("this test needs libfaketime (Debian and Ubuntu: apt-get install libfaketime): %v", err)
	}
	run := d.run
	d.run = func() *exec.Cmd {
		c := run()
		c.Env = append(c.Environ(), "LD_PRELOAD="+found[0], "FAKETIME_DONT_FAKE_MONOTONIC=1",
			fmt.Sprintf("FAKETIME=%+.0fs", ahead.Seconds()))
		return c
	}
}

// try starts the server once. It returns when the server answers or has ended.
func (d *daemon) try() error {
	if err := d.begin(); err != nil {
		return err
	}
	return poll(daemonStart, func(ctx context.Context) error {
		if d.HasEnded() {
			return ended{fmt.Errorf("server has ended: %v", d.server.ending)}
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return d.replies(ctx)
	})
}

// begin starts the server without waiting for it. It appends to the log of the last run.
func (d *daemon) begin() error {
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	d.server = &child{cmd: d.run()}
	d.server.cmd.Stdout, d.server.cmd.Stderr = log, log
	return errors.Join(d.server.start(), log.Close())
}

func (d *daemon) logFile() string { return d.dir + ".log" }

// Kill sends SIGKILL to the server's main process. Its sessions end when they notice. Kill returns when the
// main process has ended.
func (d *daemon) Kill() error { return d.end(syscall.SIGKILL) }

func (d *daemon) end(with syscall.Signal) error {
	if err := d.server.cmd.Process.Signal(with); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", d.name, err)
	}
	select {
	case <-d.server.ended:
		return nil
	case <-time.After(daemonStart):
		return fmt.Errorf("%s still runs %s after %s", d.name, daemonStart, with)
	}
}

// pause stops a server of one process, and resume lets it continue. Its connections stay open meanwhile, but
// it does not answer. pause returns when all threads have stopped.
func (d *daemon) pause(tb testing.TB) {
	tb.Helper()
	d.signal(tb, syscall.SIGSTOP)
	await(tb, daemonStart, d.name+" to stop", func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.server.cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
				return fmt.Errorf("a thread has the state %c", state)
			}
		}
		return nil
	})
}

func (d *daemon) resume(tb testing.TB) {
	tb.Helper()
	d.signal(tb, syscall.SIGCONT)
}

func (d *daemon) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := d.server.cmd.Process.Signal(s); err != nil {
		tb.Fatalf("send %s to %s: %v", s, d.name, err)
	}
}

// HasEnded reports whether the server has ended for any cause.
func (d *daemon) HasEnded() bool { return d.server.hasEnded() }

// Log returns the end of the server's log.
func (d *daemon) Log() string {
	text, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// shutDown ends the server with the test.
func (d *daemon) shutDown(tb testing.TB, with syscall.Signal) {
	if d.server == nil || d.server.cmd.Process == nil {
		return
	}
	// A paused server could not end.
	_ = d.server.cmd.Process.Signal(syscall.SIGCONT)
	if err := d.end(with); err != nil {
		if err := d.Kill(); err != nil {
			tb.Errorf("kill %s: %v", d.name, err)
		}
	}
	if err := os.Remove(d.logFile()); err != nil {
		tb.Errorf("remove the log of %s: %v", d.name, err)
	}
}

// at returns the URL of a database.
func (d *daemon) at(database string) string {
	u := *d.url
	u.Path = "/" + database
	return u.String()
}

// daemonUser returns the user of daemons, or nil for the user of the test.
func daemonUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	const withoutRights = "65534" // the id of the user that owns no files
	for _, find := range []func() (*user.User, error){
		func() (*user.User, error) { return user.Lookup("postgres") },
		func() (*user.User, error) { return user.LookupId(withoutRights) },
	} {
		u, err := find()
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL, MariaDB and PgBouncer do not run as root; create the user postgres")
}
