package queuetest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A RedisServer is a redis-server that can end and be started again on the same port and in the same directory, as a test
// of what a restart costs needs it.
type RedisServer struct {
	// URL is "redis://127.0.0.1:PORT", the same after every start.
	URL string
	// Dir is where its files are.
	Dir string
	// Limited has every start from now on make a server whose files LimitFiles may bound: it is told of a full disk, instead of
	// being ended by a signal.
	Limited bool

	tb      testing.TB
	program string
	port    int
	args    []string
	running *child
}

// NewRedisServer starts a server as StartRedis does, and with the same arguments every time. It ends with the test.
func NewRedisServer(tb testing.TB, args ...string) *RedisServer {
	tb.Helper()
	return NewRedisServerIn(tb, tb.TempDir(), args...)
}

// NewRedisServerIn is NewRedisServer in a directory of the caller's.
func NewRedisServerIn(tb testing.TB, dir string, args ...string) *RedisServer {
	tb.Helper()
	return newServer(tb, redisProgram, dir, args)
}

func newServer(tb testing.TB, program, dir string, args []string) *RedisServer {
	tb.Helper()
	port := FreePorts(tb, 1)[0]
	s := &RedisServer{URL: "redis://127.0.0.1:" + strconv.Itoa(port), Dir: dir, tb: tb, program: program, port: port, args: args}
	s.Start()
	return s
}

// Start starts a server that has ended, and waits until it answers. Further arguments come last, so they override, and are
// forgotten at its end.
func (s *RedisServer) Start(args ...string) {
	s.tb.Helper()
	s.Begin(args...)
	s.running.awaitAnswer(s.tb)
}

// Begin is Start that waits for nothing: the server may still be loading its files.
func (s *RedisServer) Begin(args ...string) {
	s.tb.Helper()
	if s.running != nil {
		select {
		case <-s.running.ended:
		default:
			s.tb.Fatal("the redis-server is to be started, and has not ended")
		}
	}
	all := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.Dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice",
	}, s.args...)
	wrap := []string{}
	if s.Limited {
		wrap = []string{"sh", "-c", `trap "" XFSZ; exec "$@"`, "sh"}
	}
	s.running = begin(s.tb, s.program, wrap, s.port, s.Dir, append(all, args...)...)
}

// LimitFiles bounds the size to which the server may let any file grow from now on, as a full disk does; less than zero ends
// that. The server must have been started with Limited.
func (s *RedisServer) LimitFiles(bytes int64) {
	s.tb.Helper()
	if err := limitFiles(s.running.cmd.Process.Pid, bytes); err != nil {
		s.tb.Fatalf("limit the files of redis-server: %v", err)
	}
}

// Kill is kill -9: what was not yet written to its files is lost. It returns when the server has ended.
func (s *RedisServer) Kill() { s.running.kill() }

// Stop lets the server end by itself, with its files written. It returns when the server has ended.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	s.signal(syscall.SIGTERM)
	<-s.running.ended
}

// Ended is closed when the server has ended, by whatever cause.
func (s *RedisServer) Ended() <-chan struct{} { return s.running.ended }

// Log returns what the server has written, once it has ended.
func (s *RedisServer) Log() string {
	<-s.running.ended
	return s.running.output.String()
}

// Pause stops the process in the middle of whatever it does: its connections stand, and nobody answers.
func (s *RedisServer) Pause() {
	s.tb.Helper()
	s.signal(syscall.SIGSTOP)
}

// Continue ends Pause.
func (s *RedisServer) Continue() {
	s.tb.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *RedisServer) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.running.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("send %s to redis-server: %v", sig, err)
	}
}

// CopyFiles copies the server's directory and returns the copy.
// Between two writes of a server that runs it is what a snapshot of its disk would be.
func (s *RedisServer) CopyFiles() string {
	s.tb.Helper()
	copied := s.tb.TempDir()
	if err := os.CopyFS(copied, os.DirFS(s.Dir)); err != nil {
		s.tb.Fatalf("copy the files of redis-server: %v", err)
	}
	return copied
}

// PutFiles replaces the files of a server that has ended by those of a copy.
func (s *RedisServer) PutFiles(copied string) {
	s.tb.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		s.tb.Fatalf("read the files of redis-server: %v", err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(s.Dir, entry.Name())); err != nil {
			s.tb.Fatalf("remove the files of redis-server: %v", err)
		}
	}
	if err := os.CopyFS(s.Dir, os.DirFS(copied)); err != nil {
		s.tb.Fatalf("put the files of redis-server: %v", err)
	}
}

// Address is the URL's host and port.
func (s *RedisServer) Address() string { return strings.TrimPrefix(s.URL, "redis://") }
