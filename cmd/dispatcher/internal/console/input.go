package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxInput limits the bytes read from a file. The server's own limit of a body is lower.
const maxInput = 1 << 20

// ReadInput returns the value of a flag of the form TEXT|@FILE|-.
func (c *Console) ReadInput(data string) ([]byte, error) {
	var from io.Reader
	switch path, isFile := strings.CutPrefix(data, "@"); {
	case data == "-":
		from = c.In
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return nil, CannotRead(path, err)
		}
		defer f.Close()
		from = f
	default:
		return []byte(data), nil
	}
	body, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err != nil {
		return nil, CannotRead(data, err)
	}
	if len(body) > maxInput {
		return nil, fmt.Errorf("%s is larger than %d KiB", data, maxInput>>10)
	}
	return body, nil
}

// ReadText is ReadInput for a text. Its errors name the flag.
func (c *Console) ReadText(flag, value string) (string, error) {
	if value == "@" {
		return "", Wrong("--%s: add a file name after the @", flag)
	}
	b, err := c.ReadInput(value)
	if err != nil {
		return "", Wrong("--%s: %s", flag, err)
	}
	return string(b), nil
}

// ReadSecret is ReadText for a secret. It removes the newline at the end, because most files end with one.
func (c *Console) ReadSecret(flag, value string) (string, error) {
	text, err := c.ReadText(flag, value)
	text = strings.TrimRight(text, "\r\n")
	if err == nil && text == "" && value != "" {
		err = Wrong("--%s: the secret is empty", flag)
	}
	return text, err
}

// CannotRead formats an error of a file without the name of the system call.
func CannotRead(path string, err error) error {
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}

// SyntaxOf returns ": " and the position of the first syntax error in a JSON text, or "" if it is valid.
func SyntaxOf(text []byte) string {
	var any json.RawMessage
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(text, &any), &syntax) {
		return fmt.Sprintf(": %s at byte %d", syntax, syntax.Offset)
	}
	return ""
}

// Confirm asks a question on the terminal, and reports whether the answer is yes. Without a terminal it asks
// nothing and returns true: a script cannot answer.
func (c *Console) Confirm(question string) bool {
	if !c.InTerminal || !c.ErrTerminal {
		return true
	}
	fmt.Fprintf(c.Err, "%s [y/N] ", question)
	const longestAnswer = 16
	line, err := bufio.NewReader(io.LimitReader(c.In, longestAnswer)).ReadString('\n')
	if err != nil && line == "" {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
