package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// KeyCommand is the API for API keys from the shell.
type KeyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key and print it, this once."`
	List   keyList   `cmd:"" help:"List the project's API keys, newest first, those that have ended too."`
	Revoke keyRevoke `cmd:"" help:"End an API key, at once."`
}

// A shownKey is what the commands read of an API key.
type shownKey struct {
	ID         string     `json:"id"`
	Project    string     `json:"project"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	Hint       string     `json:"hint"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	// Key is its text, in the answer that it was made with.
	Key string `json:"key"`
}

// keyCreate makes a key.
type keyCreate struct {
	remote.Flags
	Name      string   `arg:"" help:"What it is for, such as \"checkout service\"."`
	Scope     []string `required:"" enum:"send,read,operate,admin" placeholder:"SCOPE" help:"What it may do: send (hand over callbacks and events), read (look at everything but secrets), operate (also change callbacks, endpoints and lanes), admin (also keys, secrets, projects and the index). May be repeated. Operate includes read, admin all."`
	ExpiresIn string   `placeholder:"DURATION" help:"It ends after so long, such as 90d. Default: it does not."`
	Reason    string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON      bool     `name:"json" help:"Print the server's answer for machines; the key is in \"key\"."`
}

// Help is what key create --help says below the flags' summary.
func (*keyCreate) Help() string {
	return "The key goes to the standard output and all else to the error output, so that KEY=$(dispatcher key create checkout --scope send) keeps it. " +
		"It needs a key of scope admin itself, such as the admin key of the settings."
}

// Run makes the key.
func (cmd *keyCreate) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	in := map[string]any{"name": cmd.Name, "scopes": cmd.Scope}
	putTexts(in, map[string]string{"expires_in": cmd.ExpiresIn, "reason": cmd.Reason})
	var k shownKey
	answer, err := cl.Call(ctx, http.MethodPost, "/v1/keys", in, &k)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Err, "%s  %s of the project %s has the scopes %s; it %s\nThis is the only time that the key is shown: keep it now.\n",
		console.Printable(k.ID), console.Printable(k.Name), console.Printable(k.Project), console.Printable(strings.Join(k.Scopes, ", ")), keyEnd(&k))
	_, err = fmt.Fprintln(c.Out, console.Printable(k.Key))
	return err
}

// keyEnd says when a key ends.
func keyEnd(k *shownKey) string {
	if k.ExpiresAt == nil {
		return "lasts until it is revoked"
	}
	return "ends " + console.ClockTime(k.ExpiresAt)
}

// keyList lists the keys.
type keyList struct {
	remote.Flags
	listFlags
}

// Run prints the keys.
func (cmd *keyList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	none := "the project has no keys (\"dispatcher key create\" makes one); the admin key of the settings is not among them"
	return showList(ctx, c, cl, "/v1/keys", url.Values{}, cmd.listFlags, none, func(keys []shownKey) {
		now := time.Now()
		t := c.NewTable("id", "name", "scopes", "ends with", "made", "last used", "state")
		for i := range keys {
			k := &keys[i]
			t.AppendRow([]any{console.Printable(k.ID), console.Short(k.Name, 32), console.Printable(strings.Join(k.Scopes, " ")), "…" + console.Printable(k.Hint),
				ago(k.CreatedAt, now), agoOr(k.LastUsedAt, now, "never"), keyState(c, k, now)})
		}
		t.Render()
	})
}

// keyState says whether a key is valid, and until when.
func keyState(c *console.Console, k *shownKey, now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return c.Paint("revoked "+ago(*k.RevokedAt, now), console.StateColour("dead"))
	case k.ExpiresAt == nil:
		return c.Paint("valid", console.StateColour("succeeded"))
	case !k.ExpiresAt.After(now):
		return c.Paint("ended "+ago(*k.ExpiresAt, now), console.StateColour("dead"))
	}
	return c.Paint("valid", console.StateColour("succeeded")) + " until " + console.ClockTime(k.ExpiresAt)
}

// keyRevoke ends a key.
type keyRevoke struct {
	remote.Flags
	ID     string `arg:"" help:"Id of the key, key_ and 26 characters (see \"dispatcher key list\")."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run ends the key.
func (cmd *keyRevoke) Run(ctx context.Context, c *console.Console) error {
	if strings.HasPrefix(cmd.ID, config.ApiKeyPrefix) {
		return &console.UsageError{Lines: []string{"this is a key itself, not its id: \"dispatcher key list\" shows the ids, which begin with key_"}}
	}
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var k shownKey
	answer, err := cl.Call(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(cmd.ID), reasonOf(cmd.Reason), &k)
	if err != nil {
		return remote.InWords(err, "no key of the project has the id %q", cmd.ID)
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  %s is revoked: nobody can use it any more\n", console.Printable(k.ID), console.Printable(k.Name))
	return nil
}

// reasonOf is the body of a call that needs nothing but a reason; nil: none was given.
func reasonOf(reason string) any {
	if reason == "" {
		return nil
	}
	return map[string]string{"reason": reason}
}

// putTexts puts the texts that are not empty into the body of a request.
func putTexts(in map[string]any, texts map[string]string) {
	for name, value := range texts {
		if value != "" {
			in[name] = value
		}
	}
}

// ago says how long ago something was.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return console.Brief(d.Truncate(time.Second)) + " ago"
	case d < 24*time.Hour:
		return console.Brief(d.Truncate(time.Minute)) + " ago"
	}
	return console.Brief(d.Truncate(time.Hour)) + " ago"
}

// agoOr is ago for a time that there may not be.
func agoOr(t *time.Time, now time.Time, otherwise string) string {
	if t == nil || t.IsZero() {
		return otherwise
	}
	return ago(*t, now)
}
