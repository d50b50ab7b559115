package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// processCommand makes this program one of the processes of a comparison. Its arguments are the role and the
// settings.
const processCommand = "process"

// Roles name processes by what they do. The servers have the names of their programs.
const (
	roleFloor      = "floor"
	roleAsynq      = "asynq worker"
	roleRiver      = "river worker"
	roleDispatcher = "dispatcher"
	roleRedis      = "redis-server"
	rolePostgres   = "postgres"
)

// startTime is how long a process may take until it is ready.
const startTime = time.Minute

// processConfig are the settings of a process.
type processConfig struct {
	Receiver    string // URL to send to
	Concurrency int    // most requests in flight
	First       int    // number of the first callback, of the floor
	Count       int    // callbacks to send, of the floor
	Store       string // URL of Redis or PostgreSQL, of a queue's worker
}

// The words that a process and the one that started it exchange, each on a line.
const (
	wordReady   = "ready"   // the process is ready to begin
	wordGo      = "go"      // begin
	wordStop    = "stop"    // finish what has begun, and take no more
	wordStopped = "stopped" // it has
)

// runProcess is the process. It ends when its standard input does.
func runProcess(args []string) error {
	var cfg processConfig
	if len(args) != 2 {
		return errors.New("a process needs a role and its settings")
	}
	if err := json.Unmarshal([]byte(args[1]), &cfg); err != nil {
		return err
	}
	words := conversation{bufio.NewReader(os.Stdin), os.Stdout}
	switch args[0] {
	case roleFloor:
		return sendInLoop(words, cfg)
	case roleAsynq:
		return workAsynq(words, cfg)
	case roleRiver:
		return workRiver(words, cfg)
	}
	return fmt.Errorf("no role %q", args[0])
}

// A conversation is one side of the exchange of words.
type conversation struct {
	in  *bufio.Reader
	out io.Writer
}

func (c conversation) say(word string) error {
	_, err := fmt.Fprintln(c.out, word)
	return err
}

func (c conversation) await(word string) error {
	line, err := c.in.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != word {
		err = fmt.Errorf("got %q, want %q", line, word)
	}
	return err
}

// awaitEnd waits until the other side ends the conversation.
func (c conversation) awaitEnd() error {
	_, err := io.Copy(io.Discard, c.in)
	return err
}

// endWithParent has the kernel kill a child when this process ends without ending it.
var endWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// start starts a process of the role and returns when it is ready. It ends with the measurement.
func (r *run) start(role string, cfg processConfig) conversation {
	settings, err := json.Marshal(cfg)
	r.check(role, err)
	self, err := os.Executable()
	r.check(role, err)
	cmd := exec.Command(self, processCommand, role, string(settings))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, endWithParent
	stdin, err := cmd.StdinPipe()
	r.check(role, err)
	stdout, err := cmd.StdoutPipe()
	r.check(role, err)
	r.check(role, cmd.Start())
	r.roles[cmd.Process.Pid] = role
	r.Cleanup(func() {
		hung := time.AfterFunc(startTime, func() { cmd.Process.Kill() })
		defer hung.Stop()
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			r.Errorf("end of the %s: %v", role, err)
		}
	})
	words := conversation{bufio.NewReader(stdout), stdin}
	hung := time.AfterFunc(startTime, func() { cmd.Process.Kill() }) // ends the read of its words
	defer hung.Stop()
	r.check(role, words.await(wordReady))
	return words
}
