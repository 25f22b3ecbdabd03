-- The tables of coderd 2.30.0 that operator access touches, with every constraint that its rows must meet.

CREATE TYPE user_status AS ENUM ('active', 'suspended', 'dormant');
CREATE TYPE login_type AS ENUM ('password', 'github', 'oidc', 'token', 'none', 'oauth2_provider_app');
CREATE TYPE api_key_scope AS ENUM ('coder:all', 'coder:application_connect', 'workspace:read');

CREATE TABLE users (
    id uuid PRIMARY KEY,
    email text NOT NULL,
    username text DEFAULT '' NOT NULL,
    hashed_password bytea NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    status user_status DEFAULT 'dormant' NOT NULL,
    rbac_roles text[] DEFAULT '{}' NOT NULL,
    login_type login_type DEFAULT 'password' NOT NULL,
    avatar_url text DEFAULT '' NOT NULL,
    deleted boolean DEFAULT false NOT NULL,
    last_seen_at timestamp DEFAULT '0001-01-01 00:00:00' NOT NULL,
    quiet_hours_schedule text DEFAULT '' NOT NULL,
    name text DEFAULT '' NOT NULL,
    github_com_user_id bigint,
    hashed_one_time_passcode bytea,
    one_time_passcode_expires_at timestamptz,
    is_system boolean DEFAULT false NOT NULL,
    CONSTRAINT one_time_passcode_set CHECK ((hashed_one_time_passcode IS NULL) = (one_time_passcode_expires_at IS NULL))
);

CREATE UNIQUE INDEX idx_users_username ON users (username) WHERE NOT deleted;
CREATE UNIQUE INDEX users_username_lower_idx ON users (lower(username)) WHERE NOT deleted;
CREATE UNIQUE INDEX idx_users_email ON users (email) WHERE NOT deleted;
CREATE UNIQUE INDEX users_email_lower_idx ON users (lower(email)) WHERE NOT deleted;

CREATE TABLE user_status_changes (
    user_id uuid NOT NULL REFERENCES users (id),
    new_status user_status NOT NULL,
    changed_at timestamptz DEFAULT now() NOT NULL
);

CREATE FUNCTION record_user_status_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR OLD.status IS DISTINCT FROM NEW.status THEN
        INSERT INTO user_status_changes (user_id, new_status, changed_at) VALUES (NEW.id, NEW.status, NEW.updated_at);
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER user_status_change AFTER INSERT OR UPDATE ON users
    FOR EACH ROW EXECUTE FUNCTION record_user_status_change();

CREATE TABLE api_keys (
    id text PRIMARY KEY,
    hashed_secret bytea NOT NULL,
    user_id uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    last_used timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    login_type login_type NOT NULL,
    lifetime_seconds bigint DEFAULT 86400 NOT NULL,
    ip_address inet DEFAULT '0.0.0.0' NOT NULL,
    token_name text DEFAULT '' NOT NULL,
    scopes api_key_scope[] NOT NULL,
    allow_list text[] NOT NULL,
    CONSTRAINT api_keys_allow_list_not_empty CHECK (array_length(allow_list, 1) > 0)
);
CREATE UNIQUE INDEX idx_api_key_name ON api_keys (user_id, token_name) WHERE login_type = 'token';

CREATE FUNCTION delete_keys_of_deleted_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.deleted THEN
        DELETE FROM api_keys WHERE user_id = NEW.id;
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER user_deleted BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION delete_keys_of_deleted_user();

CREATE FUNCTION refuse_key_of_deleted_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM users WHERE id = NEW.user_id AND deleted) THEN
        RAISE EXCEPTION 'cannot make a key for a deleted user';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER key_of_deleted_user BEFORE INSERT ON api_keys
    FOR EACH ROW EXECUTE FUNCTION refuse_key_of_deleted_user();

CREATE TABLE organizations (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    display_name text NOT NULL,
    description text NOT NULL,
    is_default boolean DEFAULT false NOT NULL,
    deleted boolean DEFAULT false NOT NULL
);
