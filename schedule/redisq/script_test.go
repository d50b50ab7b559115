package redisq

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestScriptHeaders checks that every script's header names its keys, arguments and reply, and that the
// script uses exactly these.
func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	scripts, err := loadScripts()
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 14 {
		t.Fatalf("only %d scripts", len(scripts))
	}
	number := regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	files, err := luaFiles.ReadDir("lua")
	if err != nil || len(files) != len(scripts)+1 {
		t.Fatalf("%d files of %d scripts, and their parts: %v", len(files), len(scripts), err)
	}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		text, err := luaFiles.ReadFile("lua/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		name := parseHeader(string(text))["Operation"][0]
		s := scripts[name]
		if s == nil || !strings.HasSuffix(s.body, string(text)) {
			t.Fatalf("%s does not begin with its operation", file.Name())
		}
		for _, field := range []string{"KEYS", "ARGV", "Reply"} {
			if len(parseHeader(string(text))[field]) == 0 {
				t.Errorf("the header of %s has no %s", name, field)
			}
		}
		if s.keys[0] != "META" || s.argv[0] != "GENERATION" {
			t.Errorf("%s begins with %s and %s, not with the shard's meta key and the generation", name,
				s.keys[0], s.argv[0])
		}
		if found := number.FindString(string(text)); found != "" {
			t.Errorf("%s uses %s instead of the header's name", name, found)
		}
		// The script and its includes use only declared keys, and all declared arguments.
		body := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(s.body, "")
		for key := range keyNames {
			uses := len(regexp.MustCompile(`\b`+key+`\b`).FindAllString(body, -1))
			declared := strings.Contains(" "+strings.Join(s.keys, " ")+" ", " "+key+" ")
			if uses > 0 && !declared {
				t.Errorf("%s uses %s and does not declare it", name, key)
			}
		}
		for _, argument := range s.argv {
			uses := len(regexp.MustCompile(`\b`+argument+`\b`).FindAllString(body, -1))
			if uses < 2 && argument != "SHARD" {
				t.Errorf("%s declares the argument %s and does not use it", name, argument)
			}
		}
	}
}

func TestScriptRefusesOtherArguments(t *testing.T) {
	t.Parallel()
	s, err := loadScript("move_items.lua")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 9 {
		want := n == 4 || n == 7
		if err := s.check(make([]any, n)); (err == nil) != want {
			t.Errorf("%d arguments for 4 and 3 each: %v", n, err)
		}
	}
	if _, err := loadScript("absent.lua"); err == nil {
		t.Error("a missing script was read")
	}
}

func TestShardsAreEven(t *testing.T) {
	t.Parallel()
	const shards, n = 16, 16000
	var lanes, locks [shards]int
	for i := range n {
		lanes[shardOfLane(int64(i+1), shards)]++
		locks[shardOfLock("order-"+strconv.Itoa(i), shards)]++
	}
	for shard := range shards {
		for what, got := range map[string]int{"lanes": lanes[shard], "locks": locks[shard]} {
			if got < n/shards*7/10 || got > n/shards*13/10 {
				t.Errorf("shard %d has %d of %d %s", shard, got, n, what)
			}
		}
	}
	// Operators know the delay set by this name.
	if got := keysOf(defaultPrefix, 0).named("DELAY"); got != "dispatcher:{dispatcher:0}:delay" {
		t.Errorf("the delay set is %s", got)
	}
	// These shards must not change: that would need a rebuild of every index.
	if a, b := shardOfLane(1, 16), shardOfLock("order-1", 16); a != 0 || b != 2 {
		t.Errorf("lane 1 is in shard %d and lock order-1 in %d of 16", a, b)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{}, {URL: "http://localhost"}, {URL: "redis://127.0.0.1:1", Prefix: "a{b"},
		{URL: "redis://127.0.0.1:1", Shards: -1},
		{URL: "redis://127.0.0.1:1", Shards: 5000},
		{URL: "redis://127.0.0.1:1", Prefix: strings.Repeat("p", 65)},
	} {
		if _, err := Open(context.Background(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
