package testserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

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
