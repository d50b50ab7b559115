package testserver

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// needsServer skips a test in short runs, which need no programs but Go.
func needsServer(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a redis-server")
	}
}

func TestSharedServerOutlivesItsTests(t *testing.T) {
	needsServer(t)
	var urls []string
	for range 2 {
		t.Run("test", func(t *testing.T) { urls = append(urls, SharedRedis(t)) })
	}
	if urls[0] != urls[1] {
		t.Errorf("two tests have different servers: %q", urls)
	}
	if _, err := ask(t.Context(), strings.TrimPrefix(urls[0], "redis://"), "", "ping"); err != nil {
		t.Errorf("after the tests the server does not answer: %v", err)
	}
}

func TestLifetimeEndsItsServers(t *testing.T) {
	needsServer(t)
	l := &lifetime{}
	s := NewRedis(l)
	if err := l.end(); err != nil {
		t.Error(err)
	}
	select {
	case <-s.Ended():
	default:
		t.Error("the server still runs")
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server's directory: %v, want none", err)
	}
}

// TestMissingProgram checks that a test without its program fails with a hint to install it.
func TestMissingProgram(t *testing.T) {
	defer func() {
		failure, _ := recover().(startFailed)
		for _, want := range []string{"absent-server", "apt-get install", "-short"} {
			if failure.error == nil || !strings.Contains(failure.Error(), want) {
				t.Errorf("the failure is %v, want one with %q", failure.error, want)
			}
		}
	}()
	l := &lifetime{}
	defer func() {
		if err := l.end(); err != nil {
			t.Error(err)
		}
	}()
	NewRedisOf(l, "absent-server")
}

func TestFreePortsAreNeverChosenTwice(t *testing.T) {
	t.Parallel()
	chosen := make(chan []string)
	for range 4 {
		go func() {
			var ports []string
			for range 100 {
				ports = append(ports, FreePort(t))
			}
			chosen <- ports
		}()
	}
	var all []string
	for range 4 {
		all = append(all, <-chosen...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 400 {
		t.Errorf("%d different ports, want 400", n)
	}
}

// TestBlocksHaveOneHolder checks that a block that is held is not given to a second holder.
func TestBlocksHaveOneHolder(t *testing.T) {
	own, err := ownBlock()
	if err != nil {
		t.Fatal(err)
	}
	other, err := holdBlock()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if own.Addr().String() == other.Addr().String() {
		t.Errorf("two holders have the block of %s", own.Addr())
	}
}

// TestPostgresOnATakenPort checks that a start fails if another server answers on the port.
func TestPostgresOnATakenPort(t *testing.T) {
	needsServer(t)
	s := NewPostgres(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.url.Host = SharedPostgres(t).url.Host
	if err := s.try(); err == nil || !strings.Contains(s.Log(), "Address already in use") {
		t.Errorf("started on a taken port: %v\n%s", err, s.Log())
	}
}

func TestSizes(t *testing.T) {
	for size, want := range map[string][2]bool{
		"": {false, false}, "full": {true, false}, "long": {true, true},
	} {
		t.Setenv(sizeVariable, size)
		if got := [2]bool{Full(), Long()}; got != want {
			t.Errorf("Full and Long of size %q: %t, want %t", size, got, want)
		}
	}
}

// TestFreePortsAreFreeWhileProgramsStart checks the fork lock of isFree: a forked process that has not
// reached its exec must not keep the listener of a chosen port open. The first program of a test binary is a
// case of its own (see ownBlock).
func TestFreePortsAreFreeWhileProgramsStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Errorf("start a program: %v", err)
					return
				}
			}
		})
	}
	for range 1_000 {
		address := net.JoinHostPort("127.0.0.1", FreePort(t))
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("listen on the chosen port: %v", err)
			break
		}
		l.Close()
	}
	stop()
	starting.Wait()
}

// TestMariaDB checks that a server keeps its data over ends of all kinds, and that a paused one hangs.
func TestMariaDB(t *testing.T) {
	needsServer(t)
	s := NewMariaDB(t)
	url := s.Database(t)
	db := DB(t, url)
	if _, err := db.Exec("CREATE TABLE t (x INT); INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{"stop": s.Stop, "kill": s.Kill} {
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		s.Start(t)
		var x int
		if err := DB(t, url).QueryRow("SELECT x FROM t").Scan(&x); err != nil || x != 1 {
			t.Errorf("after %s: read %d, %v", name, x, err)
		}
	}
	s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := db.PingContext(ctx); err == nil {
		t.Error("a paused server answers")
	}
	s.Continue(t)
	if err := DB(t, url).Ping(); err != nil {
		t.Error(err)
	}
	if url == SharedMariaDB(t).Database(t) {
		t.Error("two databases have one URL")
	}
}

// TestPgBouncer checks that two clients share one session, and that the process can be started again.
func TestPgBouncer(t *testing.T) {
	needsServer(t)
	server := SharedPostgres(t)
	b := NewPgBouncer(t, server, 1)
	url := b.URL(server.Database(t)) + "&default_query_exec_mode=exec"
	sessions := func() (pids [2]int) {
		for i := range pids {
			if err := DB(t, url).QueryRow("SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
				t.Fatal(err)
			}
		}
		return pids
	}
	if got := sessions(); got[0] != got[1] {
		t.Errorf("two clients have the sessions %d, want one", got)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b.Start(t)
	sessions()
}

// TestPollRepeatsAPoll checks that an error that ends an inner poll does not end the outer one: a server is
// started again until it answers.
func TestPollRepeatsAPoll(t *testing.T) {
	tries := 0
	err := poll(time.Minute, func(context.Context) error {
		tries++
		return poll(time.Minute, func(context.Context) error {
			if tries < 3 {
				return ended{errors.New("the server has ended")}
			}
			return nil
		})
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
}
