package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func TestProblemsAreOneLine(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{"POST /v1/callbacks": `{"type":"about:blank","title":"Unprocessable Entity",
 "status":422,"detail":"invalid request","code":"invalid",
 "errors":[{"field":"url","message":"is needed"},{"field":"delay","message":"is \u001b negative"}]}`})
	unknown := answering(t, 401, `{"title":"Unauthorized","status":401,"detail":"the request needs a valid key","code":"unauthorized"}`)
	file := writeFile(t, "key", "k\n")
	elsewhere := handling(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/index/verify" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		respond(t, w, "<html>")
	})
	for _, tc := range []struct {
		args []string
		env  string
		want string // empty: any
	}{
		{[]string{"callback", "send", "--url", "x", "--server", address}, "DISPATCHER_ADMIN_KEY=k",
			`invalid request (422 invalid): url is needed; delay is \x1b negative`},
		{[]string{"callback", "get", oneID, "--server", address}, "DISPATCHER_KEY=k", "there is no such thing in this project (404 not_found)"},
		{[]string{"verify", "--server", "http://127.0.0.1:1"}, "DISPATCHER_KEY=k",
			`nobody listens at http://127.0.0.1:1; is "dispatcher serve" running there?`},
		// Mostly it is another server's key.
		{[]string{"key", "list", "--server", unknown}, "DISPATCHER_KEY=k",
			unknown + " does not know this key, or it has ended; it is from DISPATCHER_KEY (401 unauthorized)"},
		{[]string{"key", "list", "--server", unknown}, "DISPATCHER_KEY_FILE=" + file,
			unknown + " does not know this key, or it has ended; it is from " + file + " (401 unauthorized)"},
		// Answers that are not a dispatcher's.
		{[]string{"verify", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
		{[]string{"rebuild", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
		{[]string{"callback", "list", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
	} {
		term := newTerminal(tc.env)
		code, lines := term.invoke(tc.args...), term.lines()
		if code != exitFailed || len(lines) != 1 || tc.want != "" && lines[0] != "dispatcher: "+tc.want {
			t.Errorf("%v: exit code %d, said %q", tc.args, code, lines)
		}
	}
}

func TestTheKeyIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, adminKeyFile), []byte("in-dir\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "key", "in-file\n")
	for _, tc := range []struct {
		env   []string
		flags clientFlags
		want  string
	}{
		{[]string{"DISPATCHER_KEY=env"}, clientFlags{Key: "flag", DataDir: dir}, "flag"},
		{[]string{"DISPATCHER_KEY=env", "DISPATCHER_ADMIN_KEY=admin"}, clientFlags{DataDir: dir}, "env"},
		{[]string{"DISPATCHER_ADMIN_KEY=admin", "DISPATCHER_KEY_FILE=" + file}, clientFlags{DataDir: dir}, "admin"},
		{[]string{"DISPATCHER_ADMIN_KEY_FILE=" + file}, clientFlags{DataDir: dir}, "in-file"},
		{[]string{"DISPATCHER_DATA_DIR=" + dir}, clientFlags{}, "in-dir"},
		{nil, clientFlags{DataDir: dir}, "in-dir"},
	} {
		got, origin, err := clientKey(&newTerminal(tc.env...).console, tc.flags)
		if err != nil || got != tc.want || origin == "" {
			t.Errorf("%v %+v: got %q (%v), not %q", tc.env, tc.flags, got, err, tc.want)
		}
	}
}

// What goes into a result, or is sent, as it stands reaches the server byte by byte.
func TestVerbatimIsSentAsItIs(t *testing.T) {
	t.Parallel()
	got, err := encode(map[string]any{
		"b": verbatim(`{"x":  "<&>"}`), "a": map[string]any{"c": []string{"<"}, "d": verbatim("1.50")}, "e": map[string]any{},
	})
	want := `{"a":{"c":["\u003c"],"d":1.50},"b":{"x":  "<&>"},"e":{}}`
	if err != nil || string(got) != want {
		t.Errorf("encoded %s (%v), want %s", got, err, want)
	}
}
